"""`penstock run --processes` itself: signals, exit codes, and that no member is left behind."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.errors import EXIT_UNREACHABLE
from tests.support.gone import is_gone, until_gone
from tests.support.services import ROOT
from tests.support.waiting import until
from tests.support.worker import penstock


class Command:
    """`penstock run --processes 2` itself, with a broker that accepts and never answers."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def said(self) -> str:
        return self._log.read_text()

    def members(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]


def without_services(bootstrap_servers: str, store: Path) -> dict[str, str]:
    ours = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    return ours | {
        "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
        "PENSTOCK_OBJECTS__ENDPOINT_URL": store.as_uri(),
        "PENSTOCK_HTTP__PORT": "0",
    }


@pytest.fixture
async def command(tmp_path: Path) -> AsyncIterator[Command]:
    """When both of its members have asked the broker."""
    asked: list[asyncio.StreamWriter] = []

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(writer)
        await reader.read()

    broker = await asyncio.start_server(never_answer, "127.0.0.1", 0)
    host, port = broker.sockets[0].getsockname()
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "penstock", "run", "--processes", "2"),
            cwd=ROOT,
            env=without_services(f"{host}:{port}", tmp_path),
            stderr=stderr,
            start_new_session=True,
        )
    command = Command(process, log)

    async def both_asked() -> bool:
        assert process.returncode is None, command.said
        # One whose question was not answered may ask again meanwhile.
        return len(asked) >= 2

    try:
        await until(both_asked, lambda: command.said)
        yield command
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        broker.close()
        for writer in asked:
            writer.close()
            with suppress(ConnectionError):  # a killed member resets
                await writer.wait_closed()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_to_the_whole_process_group_ends_all_of_them_with_0(
    command: Command, number: signal.Signals
) -> None:
    members = command.members()
    assert len(members) == 2
    os.killpg(command.process.pid, number)
    assert await command.process.wait() == 0, command.said
    assert all(map(is_gone, members))


async def test_no_member_outlives_a_killed_supervisor(command: Command) -> None:
    members = command.members()
    assert len(members) == 2
    command.process.kill()
    await until_gone(*members)


async def test_what_no_member_can_do_without_is_told_and_is_the_exit_code(tmp_path: Path) -> None:
    environ = without_services("127.0.0.1:1", tmp_path) | {"PENSTOCK_LIMITS__START_MS": "100"}
    ended = await penstock("run", "--processes", "2", environ=environ)
    assert ended.code == EXIT_UNREACHABLE
    assert "the Kafka broker did not answer" in ended.stderr
    assert "ended with exit code 3; so do the others" in ended.stderr
