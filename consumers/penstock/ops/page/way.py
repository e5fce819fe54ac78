"""`/api/way?id=ID`: the way that an answer's object took through this worker, if the worker has
delivered the answer lately.

Rule: the stages are in the order of the flow, each with its time in milliseconds. An id that the
worker does not remember is answered by 404. Owner: the page's server.
"""

import os
import socket
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from penstock.core.records.output_records import Labels
from penstock.ops.http_server import as_json
from penstock.telemetry.recent import Way, Ways

PATH: Final = "/api/way"


def way_page(ways: Ways, labels: Labels) -> dict[str, Handler]:
    host, pid = socket.gethostname(), os.getpid()

    async def told(request: web.Request) -> web.Response:
        query = request.query
        # Workers of another job may answer the same messages, with the same ids, on another topic.
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
