"""A model behind the Open Inference Protocol over REST: Triton, KServe, MLServer and others.

Rule: the server is asked what the model takes before the first row is sent, and again after it was
away; nothing is guessed. Binary tensors are tried once: what a server takes is remembered. Never
sends an empty batch, which some servers refuse.
"""

import itertools
import secrets
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import orjson
from yarl import URL

from consumers import config, requests
from consumers.adapters import oip_rest
from consumers.adapters.model_http import ModelHttp, Reply, Request
from consumers.adapters.model_refusals import NOT_FOUND, OK
from consumers.adapters.oip_columns import Filled, fit_for_json
from consumers.adapters.oip_inputs import fill
from consumers.adapters.oip_outputs import Output, answers, spread
from consumers.adapters.oip_signature import Signature, signature
from consumers.core.payload import Payload
from consumers.errors import EXIT_USAGE, Fatal, Poison, Rejected, Transient, Unreachable
from consumers.ports import Answers

# Metadata is answered from memory; a server that is loading a model may need a moment.
LOOK_S: Final = 5.0
# No server of the protocol is known to take less; window.max_bytes bounds the rows.
MOST_REQUEST_BYTES: Final = 64 << 20


class OipModel:
    """The port `Model`. `columns`: how many numbers a row will have, where that is known."""

    def __init__(self, settings: config.Model, columns: int | None = None) -> None:
        self._settings = settings
        self._columns = columns
        self._http = ModelHttp(settings, most_bytes=MOST_REQUEST_BYTES)
        self._server_url = URL(f"{settings.url.rstrip('/')}/v2", encoded=True)
        self._url = _model_url(self._server_url, settings)
        self._infer_url = self._url / "infer"
        self._shown_url = config.shown_url(str(self._infer_url))
        self._known: Signature | None = None
        self._is_binary: bool | None = None
        self._ids = map(f"{secrets.token_hex(4)}-{{}}".format, itertools.count())

    @property
    def version(self) -> str | None:
        return self._settings.version

    @property
    def most_rows(self) -> int | None:
        return self._known.most_rows if self._known else None

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        try:
            known = self._known or await self._look()
            if not payloads:
                await self._check_ready()
                return Answers([], {})
            return await self._answers(known, fill(known, payloads))
        except Unreachable:
            # Whatever comes back may be another server, or another model.
            self._known = self._is_binary = None
            raise

    async def ready(self) -> bool:
        """Does the server describe the model, and say that it is ready?"""
        try:
            await self.predict(())
        except (Transient, Poison, Fatal):
            return False
        return True

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _answers(self, known: Signature, filled: Filled) -> Answers:
        if known.most_rows is not None and filled.sent > known.most_rows:
            raise Poison(
                "too_large",
                f"the model takes {known.most_rows} rows in one request, these are {filled.sent}",
            )
        if self._is_binary is False:
            filled = fit_for_json(filled)
        found = Answers([], {})
        if filled.sent:
            outputs, filled = await self._infer(known, filled)
            found = answers(outputs, filled.sent, known.outputs)
        return spread(found, filled.rows, filled.refused)

    async def _infer(self, known: Signature, filled: Filled) -> tuple[list[Output], Filled]:
        """The outputs, and which rows they are of."""
        if self._is_binary:
            return await self._infer_binary(known, filled), filled
        if self._is_binary is None:
            try:
                found = await self._infer_binary(known, filled)
            except (Rejected, Unreachable):
                # The rows are bad, or the server takes no binary tensors; some hang up on them.
                filled = fit_for_json(filled)
            else:
                self._is_binary = True
                return found, filled
        if not filled.sent:
            return [], filled
        request = oip_rest.as_json(filled, next(self._ids), known.outputs)
        reply = await self._post(request, filled)
        self._is_binary = False
        return oip_rest.read(reply), filled

    async def _infer_binary(self, known: Signature, filled: Filled) -> list[Output]:
        request = oip_rest.as_binary(filled, next(self._ids), known.outputs)
        return oip_rest.read(await self._post(request, filled))

    async def _post(self, request: Request, filled: Filled) -> Reply:
        reply = await self._http.post(self._infer_url, request, filled.sent)
        if reply.status != OK:
            raise oip_rest.refusal(reply, self._shown_url, len(request.body))
        return reply

    async def _look(self) -> Signature:
        """Ask what the model takes. Raises `Fatal` for what no row of ours could fit."""
        reply = await self._http.look(self._url, LOOK_S)
        if reply.status == NOT_FOUND and self._settings.inputs:
            reply = Reply(OK, {}, b"{}")
        if reply.status != OK:
            raise _unready(oip_rest.refusal(reply, self._shown_url, 0))
        limits = await self._http.look(self._url / "config", LOOK_S)
        known = signature(_read(reply), _read(limits), self._settings)
        self._check_rows(known)
        self._is_binary = await self._takes_binary()
        self._known = known
        return known

    async def _takes_binary(self) -> bool | None:
        """None: neither the settings nor the server say."""
        if self._settings.binary != "auto":
            return self._settings.binary == "yes"
        server = _read(await self._http.look(self._server_url, LOOK_S))
        extensions = server.get("extensions")
        is_told = isinstance(extensions, list) and "binary_tensor_data" in extensions
        return True if is_told else None

    def _check_rows(self, known: Signature) -> None:
        form = requests.find(self._settings.request).takes
        is_matrix = form == "matrix"
        if (is_matrix and known.takes_text) or (form == "bytes" and not known.takes_text):
            rows = "numbers" if is_matrix else "opaque bytes"
            mend = "'json' or 'bytes'" if is_matrix else "'float32' or 'json'"
            raise Fatal(
                f"the model wants {known}, the rows are {rows}; set model.request = {mend}",
                exit_code=EXIT_USAGE,
            )
        numbers = [one.numbers for one in known.inputs]
        total = sum(one for one in numbers if one is not None)
        if (
            is_matrix
            and self._columns is not None
            and None not in numbers
            and (total != self._columns)
        ):
            raise Fatal(
                f"the model wants {known}, the rows have {self._columns} numbers; see rows.columns",
                exit_code=EXIT_USAGE,
            )

    async def _check_ready(self) -> None:
        reply = await self._http.look(self._url / "ready", LOOK_S)
        if reply.status != OK:
            raise _unready(oip_rest.refusal(reply, self._shown_url, 0))


def _unready(error: Exception) -> Exception:
    """No rows were sent: what would be a complaint of them is one of the server's state."""
    return Transient(str(error)) if isinstance(error, Poison) else error


def _read(reply: Reply) -> Any:
    """A description; nothing where the server has none."""
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
