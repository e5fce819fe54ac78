"""What the worker that runs here says of itself: cause, stream, what to do, as on its page.

Rule: a worker sees what no look from outside can: which stream is behind, what limits it, which
rows are refused. Without a worker there is nothing to tell. Owner: `examine`.
"""

from penstock import config
from penstock.adapters.http.running_worker import status_of, url_of
from penstock.doctor.finding import Finding
from penstock.ops.problem import BAD


async def look_at_worker(cfg: config.Config) -> list[Finding]:
    if not cfg.http.port:
        return []
    url = url_of(cfg.http)
    status = await status_of(cfg.http)
    if status is None:
        said = f"none runs at {url} (http.host, http.port); one that does is asked how it is"
        return [Finding("worker", "ok", said)]
    return [
        Finding(
            "worker",
            "wrong" if one["level"] == BAD else "mind",
            f"{one['what']}. {one['do']}",
        )
        for one in status["problems"]
    ] or [Finding("worker", "ok", f"the one at {url} says that all is well")]
