"""Texts in, vectors out: servers with OpenAI's interface for embeddings (vLLM, TEI and others).

Rule: a vector belongs to the text whose `index` it carries, whatever its place in the answer. How
many texts the server takes is learned from its refusals. If one text is too long, the caller finds
its row by asking with parts of the batch.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec
import orjson
from yarl import URL

from penstock import config
from penstock.adapters.http.answer_reader import REDIRECT
from penstock.adapters.model_servers.http_calls import (
    USUAL_BOUNDS,
    AnswerBounds,
    HttpModel,
    ModelHttp,
    Reply,
    Request,
)
from penstock.adapters.model_servers.offers import with_offers
from penstock.adapters.model_servers.refusals import (
    NOT_FOUND,
    TOO_LARGE,
    by_status,
    complaint,
    excerpt,
    of_server,
)
from penstock.adapters.model_servers.row_answers import compact, read_answer, spread
from penstock.core.rows.payload import BytesRows, JsonRows, Payload
from penstock.errors import PenstockError, Poison, Rejected, Transient
from penstock.ports import Answers

# TEI answers this status if its model backend fails. The server is then at fault, not the rows.
FAILED_DEPENDENCY: Final = 424
# With these texts TEI, vLLM and OpenAI refuse too many inputs. If such a text holds a number, the
# number is the limit.
_TOO_MANY: Final = re.compile(
    r"(?:maximum allowed batch size|too many inputs|array too long|maximum length)\D{0,40}(\d+)?",
    re.IGNORECASE,
)
_JSON: Final = {"Content-Type": "application/json"}


class _Vector(msgspec.Struct):
    index: int
    embedding: msgspec.Raw


class _Vectors(msgspec.Struct):
    data: list[_Vector]


_VECTORS: Final = msgspec.json.Decoder(_Vectors)


class EmbeddingsModel(HttpModel):
    """Implements the port `Model`."""

    def __init__(self, settings: config.Model, bounds: AnswerBounds = USUAL_BOUNDS) -> None:
        # A 413 can mean that a text is too long, or that the whole body is too large.
        http = ModelHttp(settings, bounds, is_too_large=_is_body_too_large)
        super().__init__(settings, http)
        self._name = settings.name
        root = settings.url.rstrip("/").removesuffix("/v1")
        self._url = URL(f"{root}/v1/embeddings")
        self._models_url = URL(f"{root}/v1/models")
        self._health_url = URL(f"{root}/health")
        self._shown_url = config.shown_url(str(self._url))

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        if not payloads:
            await self.check()
            return Answers([], {})
        elements = [element for payload in payloads for element in _elements(payload)]
        refused = {
            row: "the row is no text"
            for row, element in enumerate(elements)
            if type(element) is not str
        }
        texts = [element for element in elements if type(element) is str]
        answers = await self._ask(texts) if texts else Answers([], {})
        return spread(answers, len(elements), refused)

    async def _ask(self, texts: list[str]) -> Answers:
        if self.most_rows is not None and len(texts) > self.most_rows:
            raise Poison("too_large", f"the server takes {self.most_rows} texts, not {len(texts)}")
        request = Request(orjson.dumps({"model": self._name, "input": texts}), _JSON)
        reply = await self._http.post(self._url, request, len(texts))
        if not reply.is_answer:
            error = self._refusal(reply, texts, len(request.body))
            raise await with_offers(error, self._http)
        return read_answer(_vectors, reply, len(texts), request)

    def _refusal(self, reply: Reply, texts: list[str], sent_bytes: int) -> PenstockError:
        reason = complaint(reply.body)
        message = f"{self._shown_url} answered {reply.status}: {reason}"
        too_many = _TOO_MANY.search(reason)
        if too_many and len(texts) > 1 and 400 <= reply.status < 500:
            limit = int(too_many[1]) if too_many[1] else len(texts) // 2
            self.most_rows = max(1, min(limit, len(texts) - 1))
            return Poison("too_large", message)
        too_large = Poison("too_large", f"{message} ({sent_bytes} bytes)")
        if reply.status == TOO_LARGE and not _is_body_too_large(reply):
            return Rejected("model_rejected", message)
        if reply.status == FAILED_DEPENDENCY:
            return Transient(message)
        return by_status(reply.status, reply.headers, message, too_large=too_large)

    async def check(self) -> None:
        """Asks `/health`, which vLLM and TEI have. If a server has no `/health`, asks for the list
        of its models.
        """
        reply = await self._http.look(self._health_url)
        if reply.status == NOT_FOUND:
            reply = await self._http.look(self._models_url)
        if reply.status >= REDIRECT:
            raise await with_offers(of_server(self._refusal(reply, [], 0)), self._http)


def _elements(payload: Payload) -> list[Any]:
    if isinstance(payload, BytesRows):
        return [_text(payload.row(index)) for index in range(payload.rows)]
    texts: list[Any] = orjson.loads(b"[%b]" % bytes(cast("JsonRows", payload).body))
    return texts


def _text(row: memoryview) -> str | None:
    try:
        return bytes(row).decode()
    except UnicodeDecodeError:
        return None


def _is_body_too_large(reply: Reply) -> bool:
    """True for a 413 whose body is not JSON, because such a 413 comes from a gateway. A server that
    has read the texts explains in JSON what is wrong with them.
    """
    return reply.status == TOO_LARGE and not reply.body.lstrip().startswith(b"{")


def _vectors(raw: bytes, rows: int) -> Answers:
    """The vectors in the order of `index`, each with its digits unchanged. Raises `Poison` if a
    text has no vector, or more than one.
    """
    try:
        data = orjson.loads(raw)["data"]
        texts = _VECTORS.decode(raw).data
        by_row = {text.index: (entry, text) for entry, text in zip(data, texts, strict=True)}
    except (ValueError, KeyError, TypeError) as error:
        raise Rejected(
            "model_rejected", f"the answer is no list of embeddings ({error!r}): {excerpt(raw)}"
        ) from None
    if len(data) != rows or by_row.keys() != set(range(rows)):
        raise Poison(
            "model_mismatch",
            f"the model was given {rows} texts and answered {len(data)} vectors, of {len(by_row)} "
            "of them",
        )
    values, errors = [], {}
    for row in range(rows):
        vector, text = by_row[row][0]["embedding"], by_row[row][1].embedding
        if not vector or (isinstance(vector, list) and None in vector):
            errors[row] = "the model answered no vector, or one with NaN"
        values.append(b"null" if row in errors else b'{"embedding":%b}' % compact(bytes(text)))
    return Answers(values, errors)
