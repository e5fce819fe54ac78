"""Two regions: `us` uses the stack, `eu` a MinIO and a model server of its own.

Rule: traffic from one region to the other passes a relay, which delays and counts the traffic.
Traffic within a region passes no relay. Owner: the run.
"""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import config
from penstock.adapters.http.running_worker import status_of
from penstock.process import children
from penstock.process.children import free_port
from realstack.minio import s3_client
from tests.support.own_minio import OwnMinio
from tests.support.relay import Relay, relay_to
from tests.support.services import Services, Topics
from tests.support.worker import environment

HELP_AFTER_MS = 3_000
HELP_LAG = 200


class OwnModel:
    """An embedded model server that keeps its port."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / "model.log"
        self._life = AsyncExitStack()

    async def start(self) -> None:
        name, module = "the model server", "penstock.tools.embedded.model_server"
        own = ("--port", str(self.port))
        running = children.running(name, module, self._log, arguments=own, environ=os.environ)
        await children.address(await self._life.enter_async_context(running), self._log)

    async def kill(self) -> None:
        await self._life.aclose()


@dataclass(frozen=True)
class Place:
    """The services of both regions. `far`: the relays, by the region whose workers use them. The
    relays under `eu` lead to the store and the model of `us`.
    """

    services: Services
    minio: OwnMinio
    model: OwnModel
    far: dict[str, list[Relay]]
    topics: dict[str, Topics]
    group: str

    def environ(self, region: str, **changes: object) -> dict[str, str]:
        store, model = (f"http://{relay.address}" for relay in self.far[region])
        stores = {"eu": self.minio.url, "us": self.services.endpoint_url}
        models = {"eu": self.model.url, "us": self.services.model_url}
        other = "us" if region == "eu" else "eu"
        stores[other], models[other] = store, model
        settings: dict[str, object] = {
            "REGION": region,
            "REGIONS__FALLBACK": "eu,us",
            "REGIONS__HELP_LAG": HELP_LAG,
            "REGIONS__HELP_AFTER_MS": HELP_AFTER_MS,
            "MODEL__REQUEST": "float32",
        }
        for name in ("eu", "us"):
            settings |= {
                f"STORES__{name.upper()}__URL": "s3://",
                f"STORES__{name.upper()}__ENDPOINT_URL": stores[name],
                f"STORES__{name.upper()}__KEY": self.services.key,
                f"STORES__{name.upper()}__SECRET": self.services.secret,
                f"STORES__{name.upper()}__REGION": self.services.region,
                f"STORES__{name.upper()}__REPLICAS": "us" if name == "eu" else "eu",
                f"REGIONS__{name.upper()}__TOPICS": self.topics[name].input,
                f"REGIONS__{name.upper()}__STORES": name,
                f"REGIONS__{name.upper()}__MODELS": models[name],
            }
        return environment(self.services, self.topics["eu"], self.group, **settings, **changes)

    def crossed_bytes(self) -> int:
        """The bytes of objects and answers that crossed between the regions, in both directions."""
        return sum(relay.given_bytes for relays in self.far.values() for relay in relays)

    def s3(self, region: str) -> Any:
        url = self.minio.url if region == "eu" else self.services.endpoint_url
        return s3_client(url, self.services.key, self.services.secret, self.services.region)


@asynccontextmanager
async def placed(
    services: Services, topics: dict[str, Topics], group: str, folder: Path, delay_s: float
) -> AsyncIterator[Place]:
    """A place in which both regions are up."""
    minio, model = OwnMinio(folder, services.bootstrap_servers), OwnModel(folder)
    async with AsyncExitStack() as stack:
        stack.callback(minio.kill)
        stack.push_async_callback(model.kill)
        await minio.start()
        await model.start()
        far: dict[str, list[Relay]] = {}
        for region, urls in {
            "eu": [services.endpoint_url, services.model_url],
            "us": [minio.url, model.url],
        }.items():
            far[region] = []
            for url in urls:
                target = url.partition("://")[2]
                relay = await stack.enter_async_context(relay_to(target, delay_s))
                await relay.listen()
                far[region].append(relay)
        yield Place(services, minio, model, far, topics, group)


async def region_of(environ: dict[str, str]) -> dict[str, Any]:
    """The part about its region in the status that the worker with these variables shows on its
    page.
    """
    status = await status_of(config.Http(port=int(environ["PENSTOCK_HTTP__PORT"])))
    assert status is not None
    found: dict[str, Any] = status["region"]
    return found
