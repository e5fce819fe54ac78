"""What the page shows of single objects. `/api/way?id=ID` shows the way that an answer's object
took through this worker. `/api/samples` shows rows beside their predictions; rows that are pictures
are shown as pictures.

Rule: the stages of a way are in the order of the flow, each with its time in milliseconds. An id
that the worker does not remember is answered by 404. The paths of samples exist only if
`http.samples` is set, and need the token if there is one. Texts stay JSON strings. A picture is
sent with headers that let a browser show it, but never run it, whatever its bytes are.
"""

import os
import socket
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from penstock.ops.http_server import as_json

# A supervisor imports this module, and starts sooner if it does not import the parts of a worker.
if TYPE_CHECKING:
    from penstock.core.records.output_records import Labels
    from penstock.ops.flow import Flow
    from penstock.pipeline.life import Pipeline
    from penstock.telemetry.recent import Way, Ways

WAY: Final = "/api/way"
SAMPLES: Final = "/api/samples"


def way_page(ways: "Ways", labels: "Labels") -> dict[str, Handler]:
    host, pid = socket.gethostname(), os.getpid()

    async def told(request: web.Request) -> web.Response:
        query = request.query
        # Workers of another job may answer the same messages with the same ids, but on another
        # output topic.
        if query.get("output", labels.output_topic) != labels.output_topic:
            return forgotten()
        model = query.get("model", labels.model)
        of = query.get("id", "").rpartition("/")[0]
        found = ways.look(of, None if model == labels.model else model)
        return forgotten() if found is None else as_json({"host": host, "pid": pid, **_told(found)})

    return {WAY: told}


def forgotten() -> web.Response:
    text = "no object of this id was delivered here of late\n"
    return web.Response(status=web.HTTPNotFound.status_code, text=text)


def _told(way: "Way") -> dict[str, Any]:
    asked = {"rows": way.rows, "objects": way.objects, "request": way.request}
    return {
        "took_ms": _ms(way.latency_s),
        "times_ms": {stage: _ms(spent_s) for stage, spent_s in way.spent._asdict().items()},
        "batch": asked if way.request else None,
    }


def _ms(time_s: float) -> float:
    return round(time_s * 1000, 1)


def sample_pages(pipeline: "Pipeline", flow: "Flow") -> dict[str, Handler]:
    """The paths of samples, each with its handler. There are none without `http.samples`."""
    samples = pipeline.wiring.samples
    if samples is None:
        return {}

    async def listed(_: web.Request) -> web.Response:
        in_view = {one["stream"] for one in flow.look().streams.streams}
        found = [one._asdict() for one in samples.look(in_view)]
        return as_json({"samples": [{**one, "picture": _path(one)} for one in found]})

    async def picture(request: web.Request) -> web.Response:
        found = samples.picture(int(request.match_info["number"]))
        return gone() if found is None else shown(found.type, found.body)

    return {SAMPLES: listed, SAMPLES + r"/{number:\d{1,15}}": picture}


def _path(sample: dict[str, Any]) -> str | None:
    return None if sample["picture"] is None else f"{SAMPLES}/{sample['number']}"


def gone() -> web.Response:
    return web.Response(status=404, text="this sample is no longer kept\n")


def shown(kind: str, body: bytes) -> web.Response:
    headers = {
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
    return web.Response(body=body, content_type=kind, headers=headers)
