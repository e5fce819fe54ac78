"""A picture, a sound or a text in, words out: servers with OpenAI's interface for chat (vLLM,
llama.cpp, OpenAI and others).

Rule: a request carries one row, and the prompt of the settings with the fields of the row's object.
The answer is never streamed. What the model says is the row's prediction; a refusal, an answer that
was cut, and one that does not fit the schema are errors of this row alone, and their tokens count,
too. A refusal of the request is about the row, unless the server names one of our settings. A field
of the prompt that the sender did not give is empty. The values are the sender's own words; whoever
may send references can so speak to the model.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Final, cast

import msgspec
import orjson
from msgspec.json import encode
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
    by_status,
    clean,
    complaint,
    excerpt,
    of_server,
    too_large,
)
from penstock.adapters.model_servers.request_forms import media_type
from penstock.adapters.model_servers.row_answers import MOST_DEPTH, read_answer
from penstock.core.records.json_schema import AnswerSchema
from penstock.core.rows.origin import About
from penstock.core.rows.payload import BytesRows, Payload
from penstock.errors import Doubtful, PenstockError, Poison, Rejected, usage
from penstock.messages.times import iso_time
from penstock.ports import Answers, Tokens

_JSON: Final = {"Content-Type": "application/json"}
_BAD_REQUEST: Final = 400
# OpenAI's newer models know the limit of the answer only by the second name, older servers of
# others only by the first. vLLM and llama.cpp know both.
_OLD_LIMIT: Final = "max_tokens"
_NEW_LIMIT: Final = "max_completion_tokens"
_WANTS_NEW: Final = re.compile(rf"unsupported.*{_NEW_LIMIT}", re.IGNORECASE | re.DOTALL)
# The settings that a server may name in the field `param` of a refusal. vLLM also names the limit
# if the prompt leaves less room, which is about the row; its code is a number then.
_SETTINGS: Final = {
    "response_format": "model.answer_schema",
    "temperature": "model.temperature",
    _OLD_LIMIT: "model.max_tokens",
    _NEW_LIMIT: "model.max_tokens",
}
# Refusals of a row with a status that means something else: llama.cpp's 500 for a picture that it
# cannot decode or a model that cannot see, OpenAI's 429 for a request above what a minute has, and
# OpenRouter's 403 for one that its moderation flagged.
_OF_ROW: Final = re.compile(
    r"failed to load image|input is not supported|request too large"
    r"|input was flagged|requires moderation",
    re.IGNORECASE,
)
# vLLM's word, and OpenRouter's, for an answer that the server did not end.
_BROKEN_OFF: Final = frozenset({"abort", "error"})
# llama.cpp names no `param`.
_OF_SCHEMA: Final = re.compile("JSON schema (error|conversion)")


class _ChatMessage(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _ChatMessage
    finish_reason: str | None = None

    @property
    def why(self) -> str:
        return f"finish_reason {clean(self.finish_reason or 'none')}"


_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


class _Usage(msgspec.Struct):
    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: msgspec.Raw = msgspec.Raw(b"null")


_COMPLETION: Final = msgspec.json.Decoder(_Completion)
_USAGE: Final = msgspec.json.Decoder(_Usage)


class ChatModel(HttpModel):
    """Implements the port `Model`."""

    most_rows = 1

    def __init__(self, settings: config.Model, bounds: AnswerBounds = USUAL_BOUNDS) -> None:
        super().__init__(settings, ModelHttp(settings, bounds))
        root = settings.url.rstrip("/").removesuffix("/v1")
        self.url = URL(f"{root}/v1/chat/completions")
        self._models_url = URL(f"{root}/v1/models")
        self._health_url = URL(f"{root}/health")
        self._shown_url = config.shown_url(str(self.url))
        self._prompt = _prompt(settings.prompt)
        self._schema = _schema(settings.answer_schema)
        self._most_tokens = settings.max_tokens
        self._limit = _OLD_LIMIT
        self._rest: dict[str, Any] = {}
        if settings.temperature is not None:
            self._rest["temperature"] = settings.temperature
        if self._schema is not None:
            wanted = {"name": "answer", "strict": True, "schema": self._schema.document}
            self._rest["response_format"] = {"type": "json_schema", "json_schema": wanted}
        self._name = settings.name

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        if not payloads:
            await self.check()
            return Answers([], {})
        if (rows := sum(payload.rows for payload in payloads)) > 1:
            raise Poison("too_large", f"{rows} rows; this request carries one")
        try:
            request = self.request(payloads)
        except ValueError as error:
            return Answers([b"null"], {0: str(error)})
        # Another call may learn the new name meanwhile.
        limit = self._limit
        reply = await self._http.post(self.url, request, rows)
        if limit == _OLD_LIMIT and _wants_new_limit(reply):
            self._limit = _NEW_LIMIT
            request = self.request(payloads)
            reply = await self._http.post(self.url, request, rows)
        if not reply.is_answer:
            raise await with_offers(self._refusal(reply, len(request.body)), self._http)
        return read_answer(self._answers, reply, rows, request)

    def request(self, payloads: Sequence[Payload]) -> Request:
        """The body and headers that `predict` posts. Raises `ValueError` if the row is none that a
        chat can carry.
        """
        (payload,) = cast("Sequence[BytesRows]", payloads)
        asked = {"type": "text", "text": self._prompt.text(payload.about)}
        document = {
            "model": self._name,
            "messages": [{"role": "user", "content": [asked, _part(bytes(payload.row(0)))]}],
            self._limit: self._most_tokens,
            **self._rest,
        }
        return Request(orjson.dumps(document), _JSON)

    async def check(self) -> None:
        """Asks `/health`, which vLLM and llama.cpp have, and then for the list of the models:
        health is told without a token.
        """
        reply = await self._http.look(self._health_url)
        if reply.status == NOT_FOUND or reply.status < REDIRECT:
            models = await self._http.look(self._models_url)
            if models.status != NOT_FOUND or reply.status == NOT_FOUND:
                reply = models
        if reply.status >= REDIRECT:
            raise await with_offers(of_server(self._refusal(reply, 0)), self._http)

    def _refusal(self, reply: Reply, sent_bytes: int) -> PenstockError:
        reason = complaint(reply.body)
        message = f"{self._shown_url} answered {reply.status}: {reason}"
        key = _setting_in(reply.body) or (
            "model.answer_schema" if _OF_SCHEMA.search(reason) else None
        )
        if reply.status == _BAD_REQUEST and key is not None:
            return usage(f"{message}; mend {key}")
        if _OF_ROW.search(reason):
            return Rejected("model_rejected", message)
        too_big = too_large(self._shown_url, sent_bytes)
        # A 500 may be about this row for good, so the row is not asked for again without end.
        return by_status(reply.status, reply.headers, message, too_large=too_big, may_be_model=True)

    def _answers(self, raw: bytes, rows: int) -> Answers:
        try:
            completion = _COMPLETION.decode(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            if _is_error(raw):  # OpenRouter tells so of what failed after the answer had begun
                message = (
                    f"the server answered an error: {self._http.access.masked_text(complaint(raw))}"
                )
                raise Doubtful("model_rejected", message) from None
            message = f"the answer is no chat completion ({error}): {excerpt(raw)}"
            raise Rejected("model_rejected", message) from None
        if not completion.choices:
            raise Poison("model_mismatch", "the model was given a row and answered no choices")
        tokens = _tokens(completion.usage)
        value, wrong = self._answer(completion.choices[0])
        if wrong is not None:
            return Answers([b"null"], {0: wrong}, tokens=tokens)
        return Answers([value], {}, tokens=tokens)

    def _answer(self, choice: _Choice) -> tuple[bytes, str | None]:
        """The prediction, and why there is none."""
        message = choice.message
        if choice.finish_reason in _BROKEN_OFF:
            text = f"the server broke off the answer ({choice.why})"
            raise Doubtful("model_rejected", text)
        if message.refusal:
            return b"", f"the model refuses: {clean(message.refusal)}"
        if choice.finish_reason == "content_filter":
            return b"", "the server's content filter withheld the answer (content_filter)"
        if choice.finish_reason == "length":
            return b"", (
                f"the answer was cut (finish_reason length), at the latest after "
                f"{self._most_tokens} tokens; raise model.max_tokens, or the server's context"
            )
        if message.content is None:
            return b"", f"the model said nothing ({choice.why})"
        if self._schema is None:
            return orjson.dumps({"text": message.content}), None
        return _fitting(message.content, self._schema)


def _wants_new_limit(reply: Reply) -> bool:
    return reply.status == _BAD_REQUEST and _WANTS_NEW.search(complaint(reply.body)) is not None


def _tokens(usage: msgspec.Raw) -> Tokens | None:
    """None: the server does not tell, or in a form of its own, which must not cost the answer."""
    try:
        used = _USAGE.decode(usage)
    except msgspec.DecodeError:
        return None
    return Tokens(used.prompt_tokens, used.completion_tokens)


def _fitting(answer: str, schema: AnswerSchema) -> tuple[bytes, str | None]:
    """The text as compact JSON with its digits, if it fits the schema."""
    text = answer.encode()
    try:
        value = orjson.loads(text)
        if text.count(b"[") + text.count(b"{") > MOST_DEPTH:
            orjson.dumps(value)
        wrong = schema.wrong(value)
        text = msgspec.json.format(text, indent=-1)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError) as error:
        wrong = f"it is unusable ({error})"
    if wrong is not None:
        return b"", f"the answer is no JSON of model.answer_schema: {wrong}: {excerpt(text)}"
    return text, None


def _part(row: bytes) -> dict[str, Any]:
    """The row as a part of a message. Raises `ValueError` if it has no form for a chat."""
    kind = media_type(row)
    if kind.startswith("image/"):
        url = f"data:{kind};base64,{b64encode(row).decode()}"
        return {"type": "image_url", "image_url": {"url": url}}
    if kind == "audio/wav":
        sound = {"data": b64encode(row).decode(), "format": "wav"}
        return {"type": "input_audio", "input_audio": sound}
    try:
        return {"type": "text", "text": row.decode()}
    except UnicodeDecodeError:
        raise ValueError("the row is no picture, no WAV sound and no text") from None


def _is_error(body: bytes) -> bool:
    try:
        return "error" in orjson.loads(body)
    except (orjson.JSONDecodeError, TypeError):
        return False


def _setting_in(body: bytes) -> str | None:
    """The key of ours that the refusal is about; None: it is about the row."""
    try:
        error = orjson.loads(body)["error"]
        named, code = error["param"], error.get("code")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None
    if not isinstance(named, str) or not isinstance(code, str | None):
        return None
    return _SETTINGS.get(named.split(".")[0])


def _schema(path: str | None) -> AnswerSchema | None:
    if path is None:
        return None
    try:
        return AnswerSchema(orjson.loads(Path(path).read_bytes()))
    except (OSError, ValueError, RecursionError) as error:
        raise usage(f"model.answer_schema {path}: {error}") from None


_FIELDS: Final = ("stream", "bucket", "key", "event_time", "member")
_ATTRIBUTE: Final = "attributes."


class Prompt:
    def __init__(self, template: str) -> None:
        """Raises `ValueError` if the template has a field that is unknown."""
        # Pairs of a text and the field behind it.
        self._pieces: list[tuple[str, str | None]] = []
        for text, field, form, conversion in Formatter().parse(template):
            if field is not None and field not in _FIELDS and not field.startswith(_ATTRIBUTE):
                known = ", ".join(f"{{{name}}}" for name in (*_FIELDS, "attributes.NAME"))
                raise ValueError(
                    f"{{{field}}} is no field: there are {known}; write {{{{ and }}}} for braces"
                )
            if form or conversion:
                raise ValueError(f"a field takes no format, write {{{field}}}")
            self._pieces.append((text, field))

    def text(self, about: About | None) -> str:
        return "".join(
            text if field is None else text + _value(field, about) for text, field in self._pieces
        )


def _prompt(template: str | None) -> Prompt:
    if not template:
        raise usage(
            "model.protocol = 'openai-chat' needs model.prompt: what the model is asked about each "
            'row, as in prompt = "Is there a person?"'
        )
    try:
        return Prompt(template)
    except ValueError as error:
        raise usage(f"model.prompt: {error}") from None


def _value(field: str, about: About | None) -> str:
    if about is None:
        return ""
    if field.startswith(_ATTRIBUTE):
        attributes = getattr(about.reference, "attributes", None) or {}
        return _text(attributes.get(field.removeprefix(_ATTRIBUTE)))
    origin = about if field in About._fields else about.reference
    value = getattr(origin, field, None)
    if field == "event_time" and isinstance(value, int):
        # A model reads a date better than milliseconds.
        return iso_time(value)
    return _text(value)


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return encode(value).decode()
