"""The Open Inference Protocol over REST.

Rule: binary tensors are sent if the server says that it takes them. If a server does not say so,
one request tries binary tensors, and the form that the server took is remembered until the server
becomes unreachable. Owner: the model's adapter.
"""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import orjson
from yarl import URL

from penstock import config
from penstock.adapters.model_servers.http_calls import ModelHttp, Reply, Request
from penstock.adapters.model_servers.oip import rest_bodies
from penstock.adapters.model_servers.oip.columns import Filled, fit_for_json
from penstock.adapters.model_servers.oip.model import Description
from penstock.adapters.model_servers.oip.outputs import Output
from penstock.adapters.model_servers.refusals import NOT_FOUND, OK, of_server
from penstock.errors import Poison, Unreachable

BINARY: Final = "binary_tensor_data"


class RestWire:
    """One model of one server."""

    def __init__(self, settings: config.Model) -> None:
        self._settings = settings
        self._http = ModelHttp(settings)
        self._server_url = URL(f"{settings.url.rstrip('/')}/v2", encoded=True)
        self._url = _model_url(self._server_url, settings)
        self.url = self._url / "infer"
        self._shown_url = config.shown_url(str(self.url))
        self._is_binary: bool | None = None

    async def describe(self) -> Description:
        reply = await self._http.look(self._url)
        if reply.status == NOT_FOUND and self._settings.inputs:
            reply = Reply(OK, {}, b"{}")
        if reply.status != OK:
            raise of_server(rest_bodies.refusal(reply, self._shown_url, 0))
        limits = await self._http.look(self._url / "config")
        self._is_binary = await self._takes_binary()
        return Description(_read(reply), _read(limits))

    async def check_ready(self) -> None:
        reply = await self._http.look(self._url / "ready")
        if reply.status != OK:
            raise of_server(rest_bodies.refusal(reply, self._shown_url, 0))

    async def infer(
        self, filled: Filled, identity: str, outputs: Sequence[str]
    ) -> tuple[list[Output], Filled]:
        if self._is_binary:
            return await self._infer(self.request(filled, identity, outputs), filled), filled
        if self._is_binary is None:
            try:
                binary = rest_bodies.as_binary(filled, identity, outputs)
                found = await self._infer(binary, filled)
            except (Poison, Unreachable):
                # Either the rows are bad, or the server does not take binary tensors; some servers
                # then hang up. The same rows are sent as JSON to learn which of the two it is.
                pass
            else:
                self._is_binary = True
                return found, filled
        filled = fit_for_json(filled)
        if not filled.sent:
            return [], filled
        found = await self._infer(rest_bodies.as_json(filled, identity, outputs), filled)
        self._is_binary = False
        return found, filled

    def request(self, filled: Filled, identity: str, outputs: Sequence[str]) -> Request:
        make = rest_bodies.as_binary if self._is_binary else rest_bodies.as_json
        return make(filled, identity, outputs)

    def forget(self) -> None:
        self._is_binary = None

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _infer(self, request: Request, filled: Filled) -> list[Output]:
        reply = await self._http.post(self.url, request, filled.sent)
        if reply.status != OK:
            raise rest_bodies.refusal(reply, self._shown_url, len(request.body))
        try:
            return rest_bodies.read(reply)
        except Poison as error:
            error.sent = request.shown(filled.sent)
            raise

    async def _takes_binary(self) -> bool | None:
        """True if binary tensors can be sent. None: neither the settings nor the server say it."""
        if self._settings.binary != "auto":
            return self._settings.binary == "yes"
        extensions = _read(await self._http.look(self._server_url)).get("extensions")
        return True if isinstance(extensions, list) and BINARY in extensions else None


def _read(reply: Reply) -> Any:
    """A description as a dictionary; empty if the server has none."""
    try:
        document = orjson.loads(reply.body) if reply.status == OK else {}
    except orjson.JSONDecodeError:
        document = {}
    return document if isinstance(document, dict) else {}


def _model_url(server: URL, settings: config.Model) -> URL:
    names = ["models", settings.name]
    if settings.version:
        names += ["versions", settings.version]
    path = "/".join(quote(name, safe="") for name in names)
    return URL(f"{server}/{path}", encoded=True)
