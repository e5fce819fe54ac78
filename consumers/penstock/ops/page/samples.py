"""`/api/samples`: rows beside their predictions, and the pictures among them.

Rule: these paths exist only if `http.samples` is set, and need the token if there is one. Texts
stay JSON strings. A picture is sent with headers that let a browser show it, but never run it,
whatever its bytes are. Owner: the page's server.
"""

from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from penstock.ops.flow import Flow
from penstock.ops.http_server import as_json
from penstock.pipeline.life import Pipeline

PATH: Final = "/api/samples"


def sample_pages(pipeline: Pipeline, flow: Flow) -> dict[str, Handler]:
    """The paths and their handlers; empty without `http.samples`."""
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

    return {PATH: listed, PATH + r"/{number:\d{1,15}}": picture}


def _path(sample: dict[str, Any]) -> str | None:
    return None if sample["picture"] is None else f"{PATH}/{sample['number']}"


def gone() -> web.Response:
    return web.Response(status=404, text="this sample is no longer kept\n")


def shown(kind: str, body: bytes) -> web.Response:
    headers = {
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
    return web.Response(body=body, content_type=kind, headers=headers)
