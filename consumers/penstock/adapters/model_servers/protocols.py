"""What `model.protocol` decides: the adapter, the number of open calls, and ready-made requests.

Rule: the gRPC libraries are imported only if their protocol is configured.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Literal, NamedTuple

from msgspec.structs import replace

from penstock import config
from penstock.adapters.model_servers import request_forms
from penstock.adapters.model_servers.asked_again_alone import AskedAgainAlone
from penstock.adapters.model_servers.chat import ChatModel
from penstock.adapters.model_servers.embeddings import EmbeddingsModel
from penstock.adapters.model_servers.http_calls import USUAL_BOUNDS, AnswerBounds
from penstock.adapters.model_servers.json_model import JsonModel
from penstock.adapters.model_servers.oip.inputs import fill
from penstock.adapters.model_servers.oip.model import OipModel, Wire
from penstock.adapters.model_servers.oip.rest_calls import RestWire
from penstock.adapters.model_servers.oip.signature import Signature, signature
from penstock.adapters.model_servers.replicas import Endpoint, ReplicatedModel, Watcher
from penstock.adapters.model_servers.torchserve import (
    TorchServeModel,
    calls_to_fill,
    double_batching_warning,
    server_batching,
)
from penstock.core.health.retries import Hedging
from penstock.core.rows.payload import BytesRows, Payload
from penstock.errors import usage
from penstock.packages import missing_extra
from penstock.ports import Model

log = logging.getLogger(__name__)

Post = Callable[[bytes], Awaitable[None]]

# The values of `model.request` that a protocol can carry: numbers, JSON, opaque bytes, columns.
OIP_REQUESTS = ("float32", "json", "bytes", "arrow")
TEXT_REQUESTS = ("json", "bytes")
CHAT_REQUESTS = ("raw",)
# Keys that only one protocol reads. With another protocol they would have no effect, so they are
# refused.
OIP_KEYS = ("inputs", "outputs", "binary")
HTTP_KEYS = ("preset", "path", "health", "template", "answers", "row_error")
CHAT_KEYS = (
    "prompt",
    "answer_schema",
    "max_tokens",
    "temperature",
    "cost_per_million_read",
    "cost_per_million_written",
)
GRPC = "grpc"
_KEYS_OF = {"http": HTTP_KEYS, "oip": OIP_KEYS, "openai-chat": CHAT_KEYS}


def open_model(cfg: config.Config, watcher: Watcher | None = None) -> Model:
    """The model of the section `[model]`, on all its servers. `watcher` is told when a server is
    passed over. Raises `Fatal` if the protocol cannot carry the configured form of rows.
    """
    each = each_endpoint(cfg)
    if len(each) == 1:
        return _open_one(cfg)
    endpoints = [Endpoint(address, _open_one(model_cfg)) for address, model_cfg in each.items()]
    hedging = Hedging() if cfg.model.hedge else None
    return ReplicatedModel(endpoints, cfg.model.failover_ms / 1000, watcher, hedging)


def each_endpoint(cfg: config.Config) -> dict[str, config.Config]:
    """For each server of the model: its address (without secrets), and the configuration with this
    server alone.
    """
    urls = list(dict.fromkeys([cfg.model.url, *(cfg.model.replicas or ())]))
    models = [replace(cfg.model, url=url, replicas=None) for url in urls]
    return {config.shown_url(model.url): replace(cfg, model=model) for model in models}


def _open_one(cfg: config.Config) -> Model:
    settings, bounds = cfg.model, AnswerBounds.of(cfg.limits)
    _check_keys(settings)
    if settings.protocol == "torchserve":
        return TorchServeModel(settings, bounds)
    if settings.protocol == "http":
        return AskedAgainAlone(JsonModel(settings, bounds))
    if settings.protocol == "openai-embeddings":
        _check_request(settings, TEXT_REQUESTS)
        return AskedAgainAlone(EmbeddingsModel(settings, bounds))
    if settings.protocol == "openai-chat":
        _check_request(settings, CHAT_REQUESTS)
        return ChatModel(settings, bounds)
    _check_request(settings, OIP_REQUESTS)
    columns = len(cfg.rows.columns) if cfg.rows.columns else None
    return AskedAgainAlone(OipModel(settings, open_wire(settings, bounds), columns))


def _check_keys(settings: config.Model) -> None:
    """Refuse keys of another protocol: it is easy to set a preset and forget the protocol."""
    known = _KEYS_OF.get(settings.protocol.removesuffix("-grpc"), ())
    for meant, key in ((meant, key) for meant, keys in _KEYS_OF.items() for key in keys):
        is_set = getattr(settings, key) != getattr(config.Model(), key)
        if is_set and key not in known:
            raise usage(
                f"model.{key} is for model.protocol = {meant!r}, but that of {settings.name!r} is "
                f"{settings.protocol!r}; set the protocol, or leave {key} out"
            )


def _check_request(settings: config.Model, known: tuple[str, ...]) -> None:
    if settings.request not in known:
        raise usage(
            f"model.request = {settings.request!r} does not go with model.protocol = "
            f"{settings.protocol!r}; choose one of {', '.join(known)}"
        )


def open_wire(settings: config.Model, bounds: AnswerBounds = USUAL_BOUNDS) -> Wire:
    if settings.protocol == "oip":
        return RestWire(settings, bounds)
    try:
        from penstock.adapters.model_servers.oip.grpc_calls import GrpcWire  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra("model.protocol = 'oip-grpc'", "grpc", error) from None
    return GrpcWire(settings)


async def signature_of(cfg: config.Config) -> Signature | None:
    """Return what the model takes; None if servers of this protocol cannot be asked for it. Raises
    the model's errors.
    """
    if cfg.model.protocol not in ("oip", "oip-grpc"):
        return None
    async with aclosing(open_wire(cfg.model)) as wire:
        described = await wire.describe()
    return signature(described.metadata, described.limits, cfg.model)


async def batching_advice(cfg: config.Config) -> str | None:
    """Return a warning if the server itself gathers requests into batches and so delays ours;
    otherwise None.
    """
    model, server = cfg.model, await server_batching(cfg.model)
    if server is None or request_forms.find(model.request).single:
        return None
    return double_batching_warning(server, max_in_flight=model.most_calls)


async def fitted_to_server(cfg: config.Config) -> config.Config:
    """Set `max_in_flight` to what suits a server that gathers requests into batches by itself. If
    each of our requests carries one row, as many calls are allowed as fill the server's batches. If
    our requests are batches already, only a warning is logged.
    """
    models = [
        replace(model, max_in_flight=await _calls_for(each.model))
        for model, each in zip(cfg.models, cfg.with_each_model().values(), strict=True)
    ]
    model = replace(cfg.model, max_in_flight=await _calls_for(cfg.model))
    return replace(cfg, model=model, models=models)


async def _calls_for(model: config.Model) -> int | Literal["auto"]:
    server = await server_batching(model)
    if server is None:
        return model.max_in_flight
    if request_forms.find(model.request).single:
        # The server makes the batches, so it tells how many calls it takes to fill them.
        return max(model.begin_calls or model.most_calls, calls_to_fill(server))
    if warning := double_batching_warning(server, max_in_flight=model.most_calls):
        log.warning("%s", warning)
    return model.max_in_flight


class ReadyMade(NamedTuple):
    """Requests with the bytes that the adapter of `model.protocol` would send. The bench sends them
    to measure the server, without the cost of decoding the answers. If `penstock doctor` is given
    an object, it shows such a request. Over gRPC each body is a message.
    """

    url: str
    headers: Mapping[str, str]
    bodies: Sequence[bytes]

    @property
    def is_grpc(self) -> bool:
        return self.url.startswith(GRPC)


async def ready_made(settings: config.Model, payloads: Sequence[Payload]) -> ReadyMade:
    """Returns one request for each payload; all payloads must have the same number of rows."""
    if settings.protocol in ("oip", "oip-grpc"):
        async with aclosing(open_wire(settings)) as wire:
            return await _of_wire(settings, wire, payloads)
    is_chat = settings.protocol == "openai-chat" and isinstance(payloads[0], BytesRows)
    if settings.protocol.startswith("openai-") and not is_chat:
        raise usage(
            f"the bench's rows are numbers, and model.protocol = {settings.protocol!r} wants texts "
            "or pictures"
        )
    known: dict[str, type[TorchServeModel | JsonModel | ChatModel]] = {
        "torchserve": TorchServeModel,
        "http": JsonModel,
        "openai-chat": ChatModel,
    }
    model = known[settings.protocol](settings)
    made = [model.request([payload]) for payload in payloads]
    return ReadyMade(str(model.url), made[0].headers, [request.body for request in made])


async def _of_wire(settings: config.Model, wire: Wire, payloads: Sequence[Payload]) -> ReadyMade:
    described = await wire.describe()
    known = signature(described.metadata, described.limits, settings)
    filled = [fill(known, [payload]) for payload in payloads]
    # The wire learns from the first answer which form of requests the server takes.
    await wire.infer(filled[0], "first", known.outputs)
    # All ids have the same length, because one header serves all bodies, and this header tells how
    # long the JSON part of a body is.
    made = [wire.request(part, f"{place:06}", known.outputs) for place, part in enumerate(filled)]
    return ReadyMade(str(wire.url), made[0].headers, [request.body for request in made])


def request_of(settings: config.Model) -> str:
    """Return the value of `model.request` that costs least: float32, but for a JSON server the
    configured value.
    """
    return settings.request if settings.protocol == "http" else "float32"


def grpc_poster(ready: ReadyMade) -> AbstractAsyncContextManager[Post]:
    from penstock.adapters.model_servers.oip.grpc_calls import poster  # noqa: PLC0415 - an extra

    return poster(ready.url)
