"""Three brokers, a store and a model server, each on a host of its own.

Rule: each record is on three brokers, and two must acknowledge it, so one broker may be away. A
broker is taken down only while the others are up, and counts as back when every replica is in sync.
Owner: the run.
"""

import asyncio
import itertools
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from botocore.exceptions import BotoCoreError, ClientError

from chaos_run.network import Network
from penstock.process import children
from penstock.tools.bench.distance import MODEL_SPREAD, STORE_SPREAD, Distance, FarAddress, relaying
from realstack import minio, processes, what_runs
from realstack.kafka import LOGGING, new_id
from realstack.minio import s3_client
from realstack.processes import Process
from realstack.service import NotReady, StackError

BROKERS = ("broker-1", "broker-2", "broker-3")
STORE, MODEL = "store", "model"
KAFKA_PORT, CONTROLLER_PORT, STORE_PORT, MODEL_PORT = 9092, 9093, 9000, 8080
# Who takes the long way to a service begins at this port of the service's host. To a broker it ends
# at a listener of its own, as a broker tells its clients the addresses of the listener they came
# by.
FAR_PORT, FAR_KAFKA_PORT = 9095, 9094
START_S = 120.0
LOOK_S = 0.2
# If a broker is away, its partitions go on without it when its session has ended. A session is 9 s,
# Kafka's default.
PROPERTIES = """\
process.roles=broker,controller
node.id={node}
listeners=PLAINTEXT://{address}:9092,CONTROLLER://{address}:9093,FAR://{address}:9094
advertised.listeners=PLAINTEXT://{address}:9092,FAR://{address}:9095
controller.listener.names=CONTROLLER
controller.quorum.voters={voters}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,FAR:PLAINTEXT
log.dirs={folder}/data
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
min.insync.replicas=2
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
"""


class Cluster:
    """A cluster must be made inside the namespaces of `network.private`. It is up after `start`."""

    def __init__(self, folder: Path) -> None:
        self.network = Network()
        self._folder = folder
        self._running: dict[str, Process] = {}
        self._turns = itertools.cycle(BROKERS)

    @property
    def bootstrap_servers(self) -> str:
        return self._brokers(KAFKA_PORT)

    @property
    def store_url(self) -> str:
        return self._url(STORE, STORE_PORT)

    @property
    def model_url(self) -> str:
        return self._url(MODEL, MODEL_PORT)

    def _brokers(self, port: int) -> str:
        return ",".join(f"{self.network.address(name)}:{port}" for name in BROKERS)

    def _url(self, host: str, port: int) -> str:
        return f"http://{self.network.address(host)}:{port}"

    @asynccontextmanager
    async def model(self) -> AsyncIterator[None]:
        """Run the model server during the block."""
        log = self._folder / "model.log"
        where = ["--host", self.network.address(MODEL), "--port", str(MODEL_PORT)]
        async with children.running(
            "the model server",
            "penstock.tools.embedded.model_server",
            log,
            arguments=where,
            environ=os.environ,
            launcher=self.network.launcher(MODEL),
        ) as child:
            await children.address(child, log)
            yield

    @asynccontextmanager
    async def at_distance(self, distance: Distance) -> AsyncIterator[dict[str, str]]:
        """During the block, the services can be reached at this distance; yields the settings for
        it. Each service has its relay on its own host, so whoever is cut from the service is cut
        from the relay, too.
        """
        address, far = self.network.address, partial(FarAddress, begin=FAR_PORT)
        settings, ways = {}, dict[str, FarAddress]()
        if ms := distance.store_ms:
            settings["OBJECTS__ENDPOINT_URL"] = self._url(STORE, FAR_PORT)
            ways[STORE] = far(address(STORE), STORE_PORT, "http", ms, STORE_SPREAD)
        if ms := distance.model_ms:
            settings["MODEL__URL"] = self._url(MODEL, FAR_PORT)
            ways[MODEL] = far(address(MODEL), MODEL_PORT, "http", ms, MODEL_SPREAD)
        if ms := distance.kafka_ms:
            settings["KAFKA__BOOTSTRAP_SERVERS"] = self._brokers(FAR_PORT)
            for name in BROKERS:
                ways[name] = far(address(name), FAR_KAFKA_PORT, "kafka", ms)
        async with AsyncExitStack() as relays:
            for name, way in ways.items():
                await relays.enter_async_context(relaying([way], self.network.launcher(name)))
            yield settings

    def start(self) -> None:
        self._format()
        for name in (*BROKERS, STORE):
            self._launch(name)
        self._until(self._store_answers, "the store answers")
        self._whole()

    def roll(self, _: str) -> None:
        """Stop and start the brokers one by one. Blocks."""
        for name in BROKERS:
            processes.stop(self._running[name])
            self._launch(name)
            self._whole()

    def lose(self, away_s: float) -> str:
        """Kill a broker, each time another one, and start it again after `away_s`. Blocks; returns
        its name.
        """
        name = next(self._turns)
        os.killpg(self._running[name].pid, signal.SIGKILL)
        time.sleep(away_s)
        self._launch(name)
        self._whole()
        return name

    def cut(self, worker: str, kind: str, victim: float) -> AbstractContextManager[None]:
        """Cut a worker from a service during the block. `kind` names the cut and the service. `cut`
        drops the packets of both directions, `mute` only those from the worker, `deaf` only those
        to the worker. If the service is `broker`, the number `victim` picks one of the brokers.
        """
        how, service = kind.split()
        far = {
            "kafka": BROKERS,
            "broker": (BROKERS[int(victim * len(BROKERS))],),
            "store": (STORE,),
            "model": (MODEL,),
        }[service]
        said = [(worker, name) for name in far] if how != "deaf" else []
        told = [(name, worker) for name in far] if how != "mute" else []
        return self.network.cut([*said, *told])

    def _format(self) -> None:
        cluster_id = new_id()
        addresses = {name: self.network.address(name) for name in BROKERS}
        voters = ",".join(
            f"{node}@{address}:{CONTROLLER_PORT}"
            for node, address in enumerate(addresses.values(), start=1)
        )
        for node, (name, address) in enumerate(addresses.items(), start=1):
            folder = self._folder / name
            folder.mkdir()
            (folder / "log4j2.properties").write_text(LOGGING)
            (folder / "server.properties").write_text(
                PROPERTIES.format(node=node, address=address, voters=voters, folder=folder)
            )
            if node > 1:
                # The folder is copied, because formatting by Java takes seconds for each broker.
                # The brokers' folders differ only in the ids that are written below.
                shutil.copytree(self._folder / BROKERS[0] / "data", folder / "data")
                meta = {"version": 1, "cluster.id": cluster_id, "node.id": node}
                meta["directory.id"] = new_id()
                text = "".join(f"{key}={value}\n" for key, value in meta.items())
                (folder / "data" / "meta.properties").write_text(text)
                continue
            # Id and option are joined to one argument, because one id in 64 begins with a minus.
            command = [*_java(folder), "kafka.tools.StorageTool", "format"]
            command += [f"--cluster-id={cluster_id}", "-c", str(folder / "server.properties")]
            subprocess.run(command, check=True, capture_output=True)

    def _launch(self, name: str) -> None:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        environ: Mapping[str, str] = {}
        address = self.network.address(name)
        if name == STORE:
            argv = [str(what_runs.MINIO.binary), "server", "--quiet"]
            argv += ["--address", f"{address}:{STORE_PORT}", str(folder)]
            environ = minio.SETTINGS
        else:
            argv = [*_java(folder), "kafka.Kafka", str(folder / "server.properties")]
        self._running[name] = processes.start(
            [*self.network.launcher(name), *argv],
            log=self._folder / f"{name}.log",
            cwd=folder,
            env=environ,
        )

    def _whole(self) -> None:
        self._until(lambda: asyncio.run(self._is_whole()), "every replica is in sync")

    async def _is_whole(self) -> bool:
        """True if all brokers are there and each replica of each partition is in sync."""
        # The client logs every refused connection, but here refusals are expected.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        try:
            await admin.start()
            brokers = (await admin.describe_cluster())["brokers"]
            names = await admin.list_topics()
            topics = await admin.describe_topics(names) if names else []
        except KafkaError as error:
            raise NotReady(str(error)) from error
        finally:
            await admin.close()
        return len(brokers) == len(BROKERS) and all(
            len(part["isr"]) == len(part["replicas"])
            for topic in topics
            for part in topic["partitions"]
        )

    def _store_answers(self) -> bool:
        client = s3_client(self.store_url, minio.KEY, minio.SECRET)
        try:
            client.list_buckets()
        except (BotoCoreError, ClientError) as error:
            raise NotReady(str(error)) from error
        finally:
            client.close()
        return True

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + START_S
        while True:
            try:
                if holds():
                    return
            except NotReady:
                pass
            if time.monotonic() > deadline_s:
                raise StackError(f"not within {START_S:.0f} s: {what}; logs in {self._folder}")
            time.sleep(LOOK_S)


def _java(folder: Path) -> list[str]:
    # Only Java's first, fast compiler is used, because the brokers start again and again and have
    # little to do.
    java = [
        "java",
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{what_runs.KAFKA.jars}/libs/*",
    ]
    return [*java, f"-Dlog4j2.configurationFile={folder}/log4j2.properties"]
