"""A strict server with OpenAI's interface for chat: it refuses what the published schema refuses.

Rule: a request has the schema's fields and no others, its picture can be decoded, and the words of
refusals are those of real servers. The model behind it sees the size of a picture, and answers text
that holds a row of the example by label and score.
"""

import asyncio
import io
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import numpy as np
import orjson
from aiohttp import web
from PIL import Image, UnidentifiedImageError

from tests.support.reference_model import numpy_answers


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    pass


class _Text(_Strict, tag_field="type", tag="text"):
    text: str


class _ImageUrl(_Strict):
    url: str
    detail: Literal["auto", "low", "high"] = "auto"


class _Image(_Strict, tag_field="type", tag="image_url"):
    image_url: _ImageUrl


class _Sound(_Strict):
    data: str
    format: Literal["wav", "mp3"]


class _Audio(_Strict, tag_field="type", tag="input_audio"):
    input_audio: _Sound


class _Message(_Strict):
    role: Literal["user", "system", "developer"]
    content: str | list[_Text | _Image | _Audio]


class _Schema(_Strict):
    name: str
    schema: dict[str, Any]
    strict: bool = False


class _Format(_Strict):
    type: Literal["json_schema"]
    json_schema: _Schema


class Asked(_Strict):
    """The body of a request. `stream` is not among the fields: a stream is never asked for."""

    model: str
    messages: list[_Message]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    response_format: _Format | None = None

    @property
    def parts(self) -> list[Any]:
        (message,) = self.messages
        return [message.content] if isinstance(message.content, str) else message.content

    @property
    def prompt(self) -> str:
        return str(self.parts[0].text)


def error(status: int, message: str, **more: Any) -> web.Response:
    headers = more.pop("headers", None)
    said = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return web.json_response({"error": said | more}, status=status, headers=headers)


def completion(content: str | None, **more: Any) -> dict[str, Any]:
    """An answer as servers give it. `more`: `finish_reason`, `refusal`."""
    message = {"role": "assistant", "content": content, "refusal": more.get("refusal")}
    reason = more.get("finish_reason", "stop")
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "eye",
        "choices": [choice],
        "usage": usage,
    }


@dataclass
class ChatServer:
    """`answers`: what the next requests get instead of the model's answer, one each: a completion,
    or a response. `wants_new`: True if the server is one that knows only `max_completion_tokens`.
    `has_health`: True if `/health` is there, for which nobody needs the key.
    `together`: no request is answered before so many were open at a time.
    """

    url: str = ""
    key: str | None = None
    wants_new: bool = False
    has_health: bool = False
    together: int = 1
    asked: list[Asked] = field(default_factory=list)
    answers: list[dict[str, Any] | web.Response | Callable[[web.Request], web.Response]] = field(
        default_factory=list
    )
    at_a_time: int = 0
    most_at_a_time: int = 0
    _met: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, request: web.Request) -> web.Response:
        if self.has_health and request.path == "/health":
            return web.Response()
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            return error(401, "Incorrect API key provided: sk-no.", code="invalid_api_key")
        if request.path == "/v1/models":
            return web.json_response({"object": "list", "data": [{"id": "eye"}]})
        if request.path != "/v1/chat/completions" or request.method != "POST":
            return error(404, f"Invalid URL ({request.method} {request.path})")
        try:
            asked = msgspec.json.decode(await request.read(), type=Asked)
        except msgspec.DecodeError as wrong:
            return error(400, str(wrong))
        if asked.model != "eye":
            message = f"The model `{asked.model}` does not exist or you do not have access to it."
            return error(404, message, code="model_not_found", param="model")
        if self.wants_new and asked.max_tokens is not None:
            return error(
                400,
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead.",
                code="unsupported_parameter",
                param="max_tokens",
            )
        self.asked.append(asked)
        self.at_a_time += 1
        self.most_at_a_time = max(self.most_at_a_time, self.at_a_time)
        try:
            if self.at_a_time >= self.together:
                self._met.set()
            await self._met.wait()
            return self._answer(request, asked)
        finally:
            self.at_a_time -= 1

    def _answer(self, request: web.Request, asked: Asked) -> web.Response:
        answer = self.answers.pop(0) if self.answers else _seen(asked)
        if isinstance(answer, dict):
            return web.json_response(answer)
        return answer if isinstance(answer, web.Response) else answer(request)


def _seen(asked: Asked) -> dict[str, Any] | web.Response:
    """What the model sees in the row, which is the second part of the message."""
    row = asked.parts[1]
    if isinstance(row, _Image):
        head, _, data = row.image_url.url.partition(";base64,")
        try:
            with Image.open(io.BytesIO(b64decode(data, validate=True))) as picture:
                if head != f"data:{picture.get_format_mimetype()}":
                    return error(400, f"{head} is not the type of the image", code="invalid_image")
                return completion(orjson.dumps({"size": picture.size}).decode())
        except (UnidentifiedImageError, ValueError):
            return error(400, "Failed to load image or audio file", code="invalid_image")
    if isinstance(row, _Audio):
        return completion(orjson.dumps({"sound": len(b64decode(row.input_audio.data))}).decode())
    try:
        numbers = np.array([orjson.loads(row.text)], "<f4")
        (answer,) = numpy_answers(numbers)
    except (ValueError, TypeError):
        return completion(None, refusal="I cannot judge this row.")
    return completion(orjson.dumps(answer).decode())


@asynccontextmanager
async def chat_server(**settings: Any) -> AsyncIterator[ChatServer]:
    server = ChatServer(**settings)
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{path:.*}", server.take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()
