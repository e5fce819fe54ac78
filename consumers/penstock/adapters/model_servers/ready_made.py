"""Makes requests to a model server before they are sent, in the protocol of the settings.

Rule: the requests have the bytes that the adapter of `model.protocol` would send. The bench sends
them to measure the server, without the cost of decoding the answers. `penstock doctor` shows people
such a request if it is given an object. Owner: the bench and `penstock doctor`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import NamedTuple

from penstock import config
from penstock.adapters.model_servers.choice import open_wire
from penstock.adapters.model_servers.json_model import JsonModel
from penstock.adapters.model_servers.oip.inputs import fill
from penstock.adapters.model_servers.oip.model import Wire
from penstock.adapters.model_servers.oip.signature import signature
from penstock.adapters.model_servers.torchserve import TorchServeModel
from penstock.core.rows.payload import Payload
from penstock.errors import usage

GRPC = "grpc"


class ReadyMade(NamedTuple):
    """Bodies to post to one address; over gRPC each body is a message."""

    url: str
    headers: Mapping[str, str]
    bodies: Sequence[bytes]

    @property
    def is_grpc(self) -> bool:
        return self.url.startswith(GRPC)


Post = Callable[[bytes], Awaitable[None]]


async def ready_made(settings: config.Model, payloads: Sequence[Payload]) -> ReadyMade:
    """One request for each payload; all payloads have the same number of rows."""
    if settings.protocol in ("oip", "oip-grpc"):
        async with aclosing(open_wire(settings)) as wire:
            return await _of_wire(settings, wire, payloads)
    if settings.protocol == "openai-embeddings":
        raise usage(
            "the bench's rows are numbers, and model.protocol = 'openai-embeddings' wants texts"
        )
    known = TorchServeModel if settings.protocol == "torchserve" else JsonModel
    model = known(settings)
    made = [model.request([payload]) for payload in payloads]
    return ReadyMade(str(model.url), made[0].headers, [one.body for one in made])


async def _of_wire(settings: config.Model, wire: Wire, payloads: Sequence[Payload]) -> ReadyMade:
    described = await wire.describe()
    known = signature(described.metadata, described.limits, settings)
    filled = [fill(known, [payload]) for payload in payloads]
    # The wire learns from the first answer which form of requests the server takes.
    await wire.infer(filled[0], "first", known.outputs)
    # All ids have the same length, because one header tells for all bodies how long the JSON part
    # is.
    made = [wire.request(one, f"{place:06}", known.outputs) for place, one in enumerate(filled)]
    return ReadyMade(str(wire.url), made[0].headers, [one.body for one in made])


def request_of(settings: config.Model) -> str:
    """The form of request that costs least: float32, except for JSON servers."""
    return settings.request if settings.protocol == "http" else "float32"


def grpc_poster(ready: ReadyMade) -> AbstractAsyncContextManager[Post]:
    from penstock.adapters.model_servers.oip.grpc_calls import poster  # noqa: PLC0415 - an extra

    return poster(ready.url)
