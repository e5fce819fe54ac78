"""The Open Inference Protocol over gRPC.

Rule: every call has a deadline. It is repeated in three cases only: if its answer cannot be read;
with a fresh token if the server refused the former; and over another channel if one used before is
silent for much longer than the server took lately.

gRPC sends all calls of a channel over one connection, and a balancer gives all of them to one
server. So calls go in turn over several channels. A channel is replaced when it is old; when it is
silent, with all that were not used since; it is closed when its last call has ended.
"""

import asyncio
import random
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import grpc
import grpc.aio
from yarl import URL

from penstock import config
from penstock.adapters.http.certificates import authorities
from penstock.adapters.http.connections import (
    AGE_S,
    IDLE_S,
    OFTEN_S,
    SILENCE_S,
    SILENT_TIMES,
    SPREAD,
    is_address,
)
from penstock.adapters.model_servers.access import ModelToken
from penstock.adapters.model_servers.http_calls import (
    LOOK_S,
    MOST_REQUEST_BYTES,
    Request,
    SizeLimit,
)
from penstock.adapters.model_servers.oip.grpc_protocol import (
    CONTENTS,
    DENIED,
    MESSAGES,
    SERVICE,
    refusal,
)
from penstock.adapters.model_servers.oip.model import Description
from penstock.adapters.model_servers.oip.outputs import OutputTensor, from_list, from_raw, unusable
from penstock.adapters.model_servers.oip.signature import Filled
from penstock.adapters.model_servers.refusals import of_server
from penstock.errors import Fatal, PenstockError, Poison, usage
from penstock.ports import outgoing_traceparent

OPTIONS: Final = (
    # Otherwise all channels to an address would share one connection.
    ("grpc.use_local_subchannel_pool", 1),
    # Each channel is connected to every address of the name, and its calls go to them in turn.
    ("grpc.lb_policy_name", "round_robin"),
    # After this time without a call the channel closes its connections.
    ("grpc.client_idle_timeout_ms", int(IDLE_S * 1000)),
    # gRPC asks the server for a sign of life while a call waits, and takes the connection for dead
    # after 9 s. It asks twice at most while nothing else is sent; the third time in five minutes
    # servers would hang up (grpc.http2.max_ping_strikes).
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.max_pings_without_data", 2),
)


class Channel:
    """`slowest_s`: how long the slowest answer took; None before the first answer."""

    def __init__(self, channel: grpc.aio.Channel, now_s: float) -> None:
        self.channel = channel
        self.used_s = now_s
        self.ends_s = now_s + AGE_S * random.uniform(2 / 3, 4 / 3)
        self.slowest_s: float | None = None
        self.is_replaced = False
        self._calls = 0

    @asynccontextmanager
    async def carrying(self) -> AsyncIterator[None]:
        """A block with a call."""
        now_s = asyncio.get_running_loop().time
        began_s, self._calls = now_s(), self._calls + 1
        try:
            yield
            self.slowest_s = max(now_s() - began_s, self.slowest_s or 0.0)
        finally:
            self._calls -= 1
            self.used_s = now_s()
            await self.close_if_over()

    async def close_if_over(self) -> None:
        if self.is_replaced and not self._calls:
            await self.channel.close()


class Channels:
    """`makes`: a function that makes a channel."""

    def __init__(self, host: str, port: int, makes: Callable[[], grpc.aio.Channel]) -> None:
        self._host = host
        self._port = port
        self._makes = makes
        # The one that was taken last is at the end.
        self._channels: deque[Channel] = deque()
        self._wanted = 1

    async def take(self) -> Channel:
        now_s = asyncio.get_running_loop().time()
        await self._replace(lambda each: now_s >= each.ends_s)
        is_often = bool(self._channels) and now_s - self._channels[0].used_s < OFTEN_S
        if not self._channels or (is_often and len(self._channels) < self._wanted):
            self._wanted = -(-SPREAD // await self._addresses())
            channel = Channel(self._makes(), now_s)
        else:
            channel = self._channels.popleft()
        self._channels.append(channel)
        return channel

    async def condemn(self, dead: Channel, asked_s: float) -> None:
        """Replace the channel, and all that may be dead like it: nothing was heard from them since
        it was asked.
        """
        await self._replace(lambda channel: channel is dead or channel.used_s <= asked_s)

    async def aclose(self) -> None:
        channels, self._channels = self._channels, deque()
        for channel in channels:
            await channel.channel.close()

    async def _replace(self, is_over: Callable[[Channel], bool]) -> None:
        over = [channel for channel in self._channels if is_over(channel)]
        for channel in over:
            channel.is_replaced = True
        self._channels = deque(channel for channel in self._channels if not channel.is_replaced)
        for channel in over:
            await channel.close_if_over()

    async def _addresses(self) -> int:
        """How many there are; 1 if the name cannot be resolved, which gRPC itself reports."""
        if is_address(self._host):
            return 1
        loop = asyncio.get_running_loop()
        try:
            entries: list[Any] = await loop.getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM
            )
        except OSError:
            return 1
        return min(SPREAD, len({where[0] for *_, where in entries}))


# A proxy may have damaged an answer that cannot be read; but if three answers, one after another,
# cannot be read, the server is at fault.
READING_TRIES: Final = 3
_PLAIN: Final = ("http", "grpc")
_SECURE: Final = ("https", "grpcs")
_OPTIONS: Final = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", MOST_REQUEST_BYTES),
    *OPTIONS,
    ("grpc.enable_retries", 0),
    # The pauses between two attempts to connect. They are short, so that a server that is available
    # again is found within a second. How often calls are tried is decided by our own pauses.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


class GrpcWire:
    """Calls one model of one server."""

    def __init__(self, settings: config.Model) -> None:
        self._settings = settings
        self._target, self._is_secure = _target_of(settings)
        self.url = URL(f"grpc://{self._target}")
        self._timeout_s = settings.timeout_ms / 1000
        self._token = ModelToken(settings)
        self._names = {"name": settings.name, "version": settings.version or ""}
        self._limit = SizeLimit(MOST_REQUEST_BYTES)
        host, _, port = self._target.rpartition(":")
        self._channels = Channels(host, int(port), self._make)

    async def describe(self) -> Description:
        try:
            metadata = await self._call("ModelMetadata", self._names, LOOK_S)
        except Fatal:
            if not self._settings.inputs:
                raise
            return Description({}, await self._limits())
        except Poison as error:
            raise of_server(error) from None
        inputs = [
            {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
            for tensor in metadata.inputs
        ]
        return Description({"inputs": inputs}, await self._limits())

    async def _limits(self) -> dict[str, Any]:
        """The model's limits, if the server is Triton. Empty for other servers, because they do not
        know this call.
        """
        try:
            known = await self._call("ModelConfig", self._names, LOOK_S)
        except (Fatal, Poison):
            return {}
        return {"max_batch_size": known.config.max_batch_size}

    async def check_ready(self) -> None:
        try:
            state = await self._call("ModelReady", self._names, LOOK_S)
        except Poison as error:
            raise of_server(error) from None
        if not state.ready:
            raise of_server(Poison("unavailable", f"{self._target}: the model is not ready"))

    async def infer(
        self, filled: Filled, identity: str, outputs: Sequence[str]
    ) -> tuple[list[OutputTensor], Filled]:
        fields = self._fields(filled, identity, outputs)
        sent_bytes = sum(map(len, fields["raw_input_contents"]))
        self._limit.check(filled.sent, sent_bytes)
        try:
            answer = await self._call("ModelInfer", fields, self._timeout_s)
        except Poison as error:
            if error.code == "too_large":
                self._limit.refused(filled.sent, sent_bytes)
            raise
        return _outputs(answer), filled

    def request(self, filled: Filled, identity: str, outputs: Sequence[str]) -> Request:
        message = MESSAGES["ModelInferRequest"](**self._fields(filled, identity, outputs))
        return Request(message.SerializeToString(), {})

    def _fields(self, filled: Filled, identity: str, outputs: Sequence[str]) -> dict[str, Any]:
        return {
            "model_name": self._settings.name,
            "model_version": self._settings.version or "",
            "id": identity,
            "outputs": [{"name": name} for name in outputs],
            "inputs": [
                {
                    "name": column.tensor.name,
                    "datatype": column.tensor.datatype,
                    "shape": column.shape,
                }
                for column in filled.columns
            ],
            "raw_input_contents": [bytes(column.raw()) for column in filled.columns],
        }

    def forget(self) -> None:
        """Does nothing: this class learns only the largest size of a request, and keeps what it
        learned.
        """

    async def aclose(self) -> None:
        await self._channels.aclose()

    async def _call(self, method: str, fields: dict[str, Any], timeout_s: float) -> Any:
        """Call, and repeat if the answer cannot be read. Raises the error that the status means."""
        for _ in range(READING_TRIES):
            if (answer := await self._call_once(method, fields, timeout_s)) is not None:
                return answer
        raise unusable(f"{self._target} {method}: OK, but without a message that can be read")

    async def _call_once(self, method: str, fields: dict[str, Any], timeout_s: float) -> Any:
        """Returns the answer, or None for an answer that is empty or that the library cannot
        read.
        """
        request = MESSAGES[f"{method}Request"](**fields)
        timeout_s = min(timeout_s, self._timeout_s)
        try:
            return await self._sent(method, request, timeout_s)
        except grpc.aio.AioRpcError as error:
            is_new = error.code() in DENIED and await self._token.read_again()
            if not is_new:
                raise self._refusal(error, method) from None
        try:
            return await self._sent(method, request, timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self._refusal(error, method) from None

    async def _sent(self, method: str, request: Any, timeout_s: float) -> Any:
        now_s = asyncio.get_running_loop().time
        channel, began_s = await self._channels.take(), now_s()
        if channel.slowest_s is not None:
            silence_s = max(SILENCE_S, SILENT_TIMES * channel.slowest_s)
            try:
                async with asyncio.timeout(silence_s if silence_s < timeout_s else None):
                    return await self._over(channel, method, request, timeout_s)
            except TimeoutError:
                await self._channels.condemn(channel, began_s)
                channel, timeout_s = await self._channels.take(), timeout_s - silence_s
        return await self._over(channel, method, request, timeout_s)

    async def _over(self, channel: Channel, method: str, request: Any, timeout_s: float) -> Any:
        call = channel.channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=MESSAGES[f"{method}Response"].FromString,
        )
        async with channel.carrying():
            return await call(request, timeout=timeout_s, metadata=self._metadata())

    def _refusal(self, error: grpc.aio.AioRpcError, method: str) -> PenstockError:
        # A server may quote the request in its error, and we log and publish the error.
        reason = config.without(self._token.secrets, error.details() or "")
        return refusal(error.code(), reason, f"{self._target} {method}")

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        token = self._token.text
        fields = [("authorization", f"Bearer {token}")] if token else []
        if (traceparent := outgoing_traceparent.get()) is not None:
            fields.append(("traceparent", traceparent))
        return tuple(fields)

    def _make(self) -> grpc.aio.Channel:
        if not self._is_secure:
            return grpc.aio.insecure_channel(self._target, _OPTIONS)
        cafile = self._settings.ssl_cafile
        roots = authorities(cafile, "model.ssl_cafile") if cafile else None
        return grpc.aio.secure_channel(self._target, grpc.ssl_channel_credentials(roots), _OPTIONS)


@asynccontextmanager
async def poster(url: str) -> AsyncIterator[Callable[[bytes], Awaitable[None]]]:
    """Yields a function that sends a finished message without TLS. The function ignores the
    answer's content.
    """
    async with grpc.aio.insecure_channel(urlsplit(url).netloc, _OPTIONS) as channel:
        call = channel.unary_unary(f"/{SERVICE}/ModelInfer")

        async def post(message: bytes) -> None:
            try:
                await call(message)
            except grpc.aio.AioRpcError as error:
                raise refusal(error.code(), error.details() or "", url) from None

        yield post


def _target_of(settings: config.Model) -> tuple[str, bool]:
    """Returns two things: `host:port` of `model.url`; and True if the URL's scheme asks for TLS."""
    try:
        parts = urlsplit(settings.url)
        host, port = parts.hostname, parts.port
    except ValueError:
        # The error does not show the URL: only a URL that can be parsed can have its secrets
        # masked.
        message = "model.url cannot be read: check host and port, as in grpc://host:8001"
        raise usage(message) from None
    if not host or not port or parts.scheme not in (*_PLAIN, *_SECURE):
        raise usage(
            f"model.url = {config.shown_url(settings.url)!r} is not an address of a gRPC "
            "server; write grpc://host:8001, or grpcs:// with TLS"
        )
    return f"{host}:{port}", parts.scheme in _SECURE


def _outputs(answer: Any) -> list[OutputTensor]:
    """Returns the outputs of an answer. Either all outputs have raw contents, or each has typed
    values.
    """
    raw = answer.raw_output_contents
    if raw and len(raw) != len(answer.outputs):
        raise unusable(f"it has {len(answer.outputs)} outputs and {len(raw)} raw contents")
    parts = []
    for index, output in enumerate(answer.outputs):
        if raw:
            parts.append(from_raw(output.name, output.datatype, output.shape, raw[index]))
            continue
        if output.datatype not in CONTENTS:
            raise unusable(f"output {output.name} is {output.datatype} without raw contents")
        values = list(getattr(output.contents, CONTENTS[output.datatype]))
        parts.append(from_list(output.name, output.datatype, output.shape, values))
    return parts
