"""`/api/way?id=ID`: how the object of an answer came here, if this worker delivered it of late.

Rule: times of the stages in milliseconds, in the order of the flow. An id that nobody remembers is
404. Owner: the page's server.
"""

import os
import socket
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from penstock.core.records.output_records import Labels
from penstock.ops.listening import as_json
from penstock.telemetry.ways import Way, Ways

PATH: Final = "/api/way"


def way_page(ways: Ways, labels: Labels) -> dict[str, Handler]:
    host, pid = socket.gethostname(), os.getpid()

    async def told(request: web.Request) -> web.Response:
        query = request.query
        # Another job may read the same messages, and answer them elsewhere.
        if query.get("output", labels.output_topic) != labels.output_topic:
            return forgotten()
        model = query.get("model", labels.model)
        of = query.get("id", "").rpartition("/")[0]
        found = ways.look(of, None if model == labels.model else model)
        return forgotten() if found is None else as_json({"host": host, "pid": pid, **_told(found)})

    return {PATH: told}


def forgotten() -> web.Response:
    text = "no object of this id was delivered here of late\n"
    return web.Response(status=web.HTTPNotFound.status_code, text=text)


def _told(way: Way) -> dict[str, Any]:
    asked = {"rows": way.rows, "objects": way.objects, "request": way.request}
    return {
        "took_ms": _ms(way.latency_s),
        "times_ms": {stage: _ms(spent_s) for stage, spent_s in way.spent._asdict().items()},
        "batch": asked if way.request else None,
    }


def _ms(time_s: float) -> float:
    return round(time_s * 1000, 1)
