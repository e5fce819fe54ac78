"""A model behind the Open Inference Protocol: Triton, KServe, MLServer and others.

Rule: the server is asked what the model takes before the first row, and again after it was
unreachable; nothing is guessed. An empty batch is never sent, because some servers refuse it.
"""

import asyncio
import itertools
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from yarl import URL

from penstock import config
from penstock.adapters.model_servers import request_forms
from penstock.adapters.model_servers.http_calls import Request
from penstock.adapters.model_servers.oip.inputs import fill
from penstock.adapters.model_servers.oip.outputs import OutputTensor, answers
from penstock.adapters.model_servers.oip.signature import Filled, Signature, signature
from penstock.adapters.model_servers.row_answers import spread
from penstock.core.rows.payload import Payload
from penstock.errors import PenstockError, Poison, Rejected, Transient, Unreachable, usage
from penstock.ports import Answers

# After refused batches the description is asked for again, but at most this often: a search for one
# bad row in 512 makes ten requests, and each of these may be refused.
LOOK_AGAIN_S: Final = 1.0


class Description(NamedTuple):
    """How a server describes a model: the model's metadata, and the model's configuration if there
    is one.
    """

    metadata: Mapping[str, Any]
    limits: Mapping[str, Any]


class Wire(Protocol):
    """REST or gRPC. The methods raise `Unreachable`, or the error that the server's refusal
    means.
    """

    async def describe(self) -> Description:
        """The server's description; empty if the server has none, so that only the settings
        describe the model.
        """
        ...

    async def check_ready(self) -> None: ...

    async def infer(
        self, filled: Filled, identity: str, outputs: Sequence[str]
    ) -> tuple[list[OutputTensor], Filled]:
        """Returns two things: the outputs; and the rows that were really sent, because the wire may
        refuse rows of `filled`.
        """
        ...

    @property
    def url(self) -> URL:
        """The address to which inferences are sent."""
        ...

    def request(self, filled: Filled, identity: str, outputs: Sequence[str]) -> Request:
        """What `infer` sends to a server that has answered before."""
        ...

    def forget(self) -> None:
        """Drop all that was learned about the server, because another server may answer from now
        on.
        """
        ...

    async def aclose(self) -> None: ...


class OipModel:
    """Implements the port `Model`. `columns`: how many numbers each row will have; None if that is
    not known.
    """

    def __init__(self, settings: config.Model, wire: Wire, columns: int | None = None) -> None:
        self._settings = settings
        self._wire = wire
        self._columns = columns
        self._known: Signature | None = None
        self._looked_s = -math.inf
        self._ids: Iterator[str] = map(f"{secrets.token_hex(4)}-{{}}".format, itertools.count())

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
                await self._wire.check_ready()
                return Answers([], {})
            try:
                return await self._answers(known, fill(known, payloads))
            except Rejected:
                await self._check_still(known, sum(payload.rows for payload in payloads))
                raise
        except Unreachable:
            # The server that comes back may be another one, or have another model.
            self._known = None
            self._wire.forget()
            raise

    async def ready(self) -> bool:
        """True if the server describes the model and says that it is ready."""
        try:
            await self.predict(())
        except PenstockError:
            return False
        return True

    async def aclose(self) -> None:
        await self._wire.aclose()

    async def _answers(self, known: Signature, filled: Filled) -> Answers:
        if known.most_rows is not None and filled.sent > known.most_rows:
            raise Poison(
                "too_large",
                f"the model takes {known.most_rows} rows in one request, these are {filled.sent}",
            )
        answer = Answers([], {})
        if filled.sent:
            outputs, filled = await self._wire.infer(filled, next(self._ids), known.outputs)
            answer = answers(outputs, filled.sent, known.outputs) if filled.sent else answer
        return spread(answer, filled.rows, filled.refused)

    async def _look(self) -> Signature:
        """Ask what the model takes. Raises `Fatal` if our rows can never fit the model."""
        described = await self._wire.describe()
        known = signature(described.metadata, described.limits, self._settings)
        self._check_rows(known)
        self._known = known
        self._looked_s = asyncio.get_running_loop().time()
        return known

    async def _check_still(self, known: Signature, rows: int) -> None:
        """After a refusal, ask whether the model was replaced while its server ran on. If the model
        was replaced, the rows are not at fault, and `Transient` is raised. After a refusal of
        several rows the server is asked at most every `LOOK_AGAIN_S`, because the caller goes on
        searching before it rejects any of these rows.
        """
        if rows > 1 and asyncio.get_running_loop().time() < self._looked_s + LOOK_AGAIN_S:
            return
        now = await self._look()
        if now != known:
            raise Transient(f"the model was replaced: it wanted {known}, now it wants {now}")

    def _check_rows(self, known: Signature) -> None:
        form = request_forms.find(self._settings.request).takes
        is_matrix = form == "matrix"
        if (is_matrix and known.takes_text) or (form == "bytes" and not known.takes_text):
            rows = "numbers" if is_matrix else "opaque bytes"
            remedy = "'json' or 'bytes'" if is_matrix else "'float32' or 'json'"
            raise usage(
                f"the model wants {known}, the rows are {rows}; set model.request = {remedy}"
            )
        numbers = [tensor.numbers for tensor in known.inputs]
        total = sum(number for number in numbers if number is not None)
        is_known = is_matrix and self._columns is not None and None not in numbers
        if is_known and total != self._columns:
            raise usage(
                f"the model wants {known}, the rows have {self._columns} numbers; see rows.columns"
            )
