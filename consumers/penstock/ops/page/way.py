"""`/api/way?id=ID`: how the object of an answer came here, if this worker delivered it of late.

Rule: times of the stages in milliseconds, in the order of the flow. An id that nobody remembers is
404. Owner: the page's server.
"""

import os
import socket
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from penstock.ops.listening import as_json
from penstock.telemetry.ways import Way, Ways

PATH: Final = "/api/way"


def way_page(ways: Ways) -> dict[str, Handler]:
    host, pid = socket.gethostname(), os.getpid()

    async def told(request: web.Request) -> web.Response:
        of = request.query.get("id", "").rpartition("/")[0]
        # The model that answers by default has no name here.
        found = ways.look(of, request.query.get("model")) or ways.look(of, None)
        return forgotten() if found is None else as_json({"host": host, "pid": pid, **_told(found)})

    return {PATH: told}


def forgotten() -> web.Response:
    text = "no object of this id was delivered here of late\n"
    return web.Response(status=web.HTTPNotFound.status_code, text=text)


def _told(way: Way) -> dict[str, Any]:
    asked = {"rows": way.rows, "objects": way.objects, "tries": way.tries}
    return {
        "took_ms": _ms(way.latency_s),
        "times_ms": {stage: _ms(spent_s) for stage, spent_s in way.spent._asdict().items()},
        "batch": asked if way.tries else None,
    }


def _ms(time_s: float) -> float:
    return round(time_s * 1000, 1)
