"""The Open Inference Protocol over REST, with or without binary tensors.

Rule: binary tensors are sent if the server says that it takes them. If it does not say, one request
tries, and the form that it took is remembered until it becomes unreachable. An answer may have
either form.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import orjson
from yarl import URL

from penstock import config
from penstock.adapters.http.answer_reader import REDIRECT
from penstock.adapters.model_servers.http_calls import (
    JSON_LENGTH,
    USUAL_BOUNDS,
    AnswerBounds,
    ModelHttp,
    Reply,
    Request,
)
from penstock.adapters.model_servers.offers import with_offers
from penstock.adapters.model_servers.oip.model import Description
from penstock.adapters.model_servers.oip.outputs import OutputTensor, from_list, from_raw, unusable
from penstock.adapters.model_servers.oip.signature import Column, Filled, fit_for_json
from penstock.adapters.model_servers.refusals import (
    NOT_FOUND,
    OK,
    by_status,
    clean,
    complaint,
    excerpt,
    of_server,
    too_large,
)
from penstock.errors import PenstockError, Poison, Rejected, Transient, Unreachable

BINARY: Final = "binary_tensor_data"
# Triton's error text while Triton is still loading the model. The status is then 404.
LOADING: Final = "has no available versions"
_RAISED: Final = re.compile(r"^[\w.]*(?:Error|Exception)\b.*$", re.MULTILINE)
_JSON: Final = {"Content-Type": "application/json"}


class RestWire:
    """Calls one model of one server."""

    def __init__(self, settings: config.Model, bounds: AnswerBounds = USUAL_BOUNDS) -> None:
        self._settings = settings
        self._http = ModelHttp(settings, bounds)
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
            raise await with_offers(of_server(refusal(reply, self._shown_url, 0)), self._http)
        limits = await self._http.look(self._url / "config")
        self._is_binary = await self._takes_binary()
        return Description(_read(reply), _read(limits))

    async def check_ready(self) -> None:
        reply = await self._http.look(self._url / "ready")
        if reply.status >= REDIRECT:
            raise await with_offers(of_server(refusal(reply, self._shown_url, 0)), self._http)

    async def infer(
        self, filled: Filled, identity: str, outputs: Sequence[str]
    ) -> tuple[list[OutputTensor], Filled]:
        if self._is_binary:
            return await self._infer(self.request(filled, identity, outputs), filled), filled
        if self._is_binary is None:
            try:
                binary = as_binary(filled, identity, outputs)
                reply = await self._infer(binary, filled)
            except (Poison, Unreachable):
                # Either the rows are bad, or the server does not take binary tensors; some servers
                # then hang up. The same rows are sent as JSON to learn which of the two it is.
                pass
            else:
                self._is_binary = True
                return reply, filled
        filled = fit_for_json(filled)
        if not filled.sent:
            return [], filled
        reply = await self._infer(as_json(filled, identity, outputs), filled)
        self._is_binary = False
        return reply, filled

    def request(self, filled: Filled, identity: str, outputs: Sequence[str]) -> Request:
        make = as_binary if self._is_binary else as_json
        return make(filled, identity, outputs)

    def forget(self) -> None:
        self._is_binary = None

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _infer(self, request: Request, filled: Filled) -> list[OutputTensor]:
        reply = await self._http.post(self.url, request, filled.sent)
        if not reply.is_answer:
            error = refusal(reply, self._shown_url, len(request.body))
            raise await with_offers(error, self._http)
        try:
            return read_outputs(reply)
        except Poison as error:
            error.sent = request.shown(filled.sent)
            raise

    async def _takes_binary(self) -> bool | None:
        """True if binary tensors can be sent. None if neither the settings nor the server tell."""
        if self._settings.binary != "auto":
            return self._settings.binary == "yes"
        extensions = _read(await self._http.look(self._server_url)).get("extensions")
        return True if isinstance(extensions, list) and BINARY in extensions else None


def _read(reply: Reply) -> Any:
    """Returns the description in the reply as a dictionary, which is empty if the server has
    none.
    """
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


def as_binary(filled: Filled, identity: str, outputs: Sequence[str]) -> Request:
    tensors = [column.raw() for column in filled.columns]
    inputs = [
        _described(column) | {"parameters": {"binary_data_size": len(raw)}}
        for column, raw in zip(filled.columns, tensors, strict=True)
    ]
    document: dict[str, Any] = {"id": identity, "inputs": inputs}
    document["parameters"] = {"binary_data_output": True}
    if outputs:
        binary = {"binary_data": True}
        document["outputs"] = [{"name": name, "parameters": binary} for name in outputs]
    head = orjson.dumps(document)
    headers = {"Content-Type": "application/octet-stream", JSON_LENGTH: str(len(head))}
    return Request(b"".join([head, *tensors]), headers)


def as_json(filled: Filled, identity: str, outputs: Sequence[str]) -> Request:
    """The request without binary tensors. `fit_for_json` must have left out the rows that JSON
    cannot carry.
    """
    inputs = [_described(column) | {"data": _data(column)} for column in filled.columns]
    document: dict[str, Any] = {"id": identity, "inputs": inputs}
    if outputs:
        document["outputs"] = [{"name": name} for name in outputs]
    return Request(orjson.dumps(document), _JSON)


def read_outputs(reply: Reply) -> list[OutputTensor]:
    """The outputs of an answer. Raises `Rejected` if the answer is not JSON, and `Poison` if its
    outputs cannot be used.
    """
    length = reply.headers.get(JSON_LENGTH)
    is_cut = length is not None and length.isdecimal()
    end = int(length[:12]) if length is not None and is_cut else len(reply.body)
    document = _loaded(reply.body[:end])
    rest, tensors = memoryview(reply.body)[end:], []
    try:
        for output in document["outputs"]:
            name, datatype, shape = (
                output["name"],
                output["datatype"],
                [int(n) for n in output["shape"]],
            )
            name.encode()
            size = (output.get("parameters") or {}).get("binary_data_size")
            if size is None:
                tensors.append(from_list(name, datatype, shape, output["data"]))
                continue
            if not 0 <= size <= len(rest):
                raise unusable(f"output {name} is cut short")
            tensors.append(from_raw(name, datatype, shape, rest[:size]))
            rest = rest[size:]
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise unusable(f"{error!r} in {excerpt(reply.body)}") from None
    if rest:
        raise unusable(f"{len(rest)} bytes are left over after its outputs")
    return tensors


def refusal(reply: Reply, url: str, sent_bytes: int) -> PenstockError:
    """The error that an answer other than 200 means."""
    message = f"{url} answered {reply.status}: {_said(reply.body)}"
    if reply.status == NOT_FOUND and LOADING in message:
        return Transient(message)
    too_big = too_large(url, sent_bytes)
    return by_status(reply.status, reply.headers, message, too_large=too_big, may_be_model=True)


def _described(column: Column) -> dict[str, Any]:
    tensor = column.tensor
    return {"name": tensor.name, "shape": column.shape, "datatype": tensor.datatype}


def _data(column: Column) -> Any:
    if not isinstance(column.values, np.ndarray):
        return [bytes(text).decode() for text in column.values]
    values = column.values.ravel()
    return orjson.Fragment(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY))


def _loaded(raw: bytes) -> Any:
    """Read JSON, even if it holds NaN or Infinity, which Python's own encoder writes."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):
            message = f"the model's answer is not JSON ({error}): {excerpt(raw)}"
            raise Rejected("model_rejected", message) from None


def _said(raw: bytes) -> str:
    """The server's error text. If it is a traceback, only the line of the exception is taken,
    because a longer text will be cut.
    """
    try:
        error = orjson.loads(raw)["error"]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return complaint(raw)
    return clean(raised(error)) if isinstance(error, str) else complaint(raw)


def raised(text: str) -> str:
    """The last line that looks like a traceback's exception; if no line does, the whole text."""
    matches = _RAISED.findall(text)
    return str(matches[-1]) if matches else text.strip()
