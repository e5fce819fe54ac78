"""Whether a process has ended that is no child of ours."""

from pathlib import Path

from tests.support.waiting import until


def is_gone(pid: int) -> bool:
    """Ended, and perhaps not yet reaped by the process that inherited it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def until_gone(*pids: int) -> None:
    async def gone() -> bool:
        return all(map(is_gone, pids))

    await until(gone, lambda: f"the end of {pids}")
