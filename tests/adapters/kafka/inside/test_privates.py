"""What we use of aiokafka that it does not promise: a release that changes it fails here.

There is no public way to give up a producer that may not send any more. pyproject.toml keeps
aiokafka below the next minor version for the same reason.
"""

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import (
    KafkaError,
)
from aiokafka.producer.message_accumulator import BatchBuilder, MessageAccumulator, MessageBatch
from aiokafka.producer.sender import Sender, SendProduceReqHandler
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.group import HeartbeatRequest
from aiokafka.protocol.produce import ProduceRequest

from penstock import config
from penstock.adapters.kafka import inside
from penstock.adapters.kafka.inside.producers import give_up, producer_of, seen
from penstock.adapters.kafka.topics import controller_known, topics_known
from penstock.tools.simulation.virtual_time import virtual_time
from tests.test_layers import privates

SOURCE = TopicPartition("refs", 0)
OUT = TopicPartition("predictions", 0)

# Every private attribute that `inside/` uses, by the class that has it.
PRIVATES = {
    asyncio.StreamReader: "_buffer",
    AIOKafkaConnection: "_handle_frame",
    AIOKafkaConsumer: "_client _coordinator _fetcher _subscription",
    AIOKafkaAdminClient: "_client",
    AIOKafkaProducer: "_closed _message_accumulator _sender _txn_manager",
    MessageAccumulator: "_batch_ttl _batches _compression_type _pending_batches _wakeup",
    MessageBatch: "_builder _drain_waiter _retry_count _ttl",
    BatchBuilder: "_buffer _build _builder _relative_offset _set_producer_state",
    Fetcher: (
        "_fetch_max_wait_ms _fetch_min_bytes _fetch_requests_routine _fetch_task "
        "_get_actions_per_node _pending_tasks _proc_fetch_request _records"
    ),
    FetchRequest: "_max_wait_ms",
    Sender: ("_in_flight _message_accumulator _muted_partitions _send_produce_req _txn_manager"),
    SendProduceReqHandler: "_batches _can_retry _sender",
    TransactionManager: "_sequence_numbers",
    ProduceRequest: "_CLASSES",
    GroupCoordinator: (
        "_get_metadata_snapshot _group_instance_id _group_subscription _metadata_snapshot _send_req"
    ),
    HeartbeatRequest: "_generation_id _group _member_id",
    OffsetCommitRequest: "_consumer_group _consumer_group_generation_id _consumer_id _topics",
}


async def test_aiokafka_has_every_private_attribute_that_we_use() -> None:
    consumer, admin = AIOKafkaConsumer(), AIOKafkaAdminClient()
    producer = AIOKafkaProducer(enable_idempotence=True)
    coordinator = GroupCoordinator(AIOKafkaClient(), SubscriptionState())
    fetcher = Fetcher(AIOKafkaClient(), SubscriptionState())
    accumulator = producer._message_accumulator
    batch = producer.create_batch()
    made: list[Any] = [
        asyncio.StreamReader(),
        AIOKafkaConnection("localhost", 9092),
        consumer,
        admin,
        producer,
        producer._sender,
        accumulator,
        SendProduceReqHandler(producer._sender, {}),
        producer._txn_manager,
        ProduceRequest(None, -1, 1, []),
        MessageBatch(OUT, batch, 1.0, 0.0),
        batch,
        fetcher,
        FetchRequest(500, 1, 1, 0, []),
        coordinator,
        HeartbeatRequest("group", 1, "member"),
        OffsetCommitRequest("group", 1, "member", -1, []),
    ]
    try:
        assert not {
            f"{type(one).__name__}.{name}"
            for one in made
            for name in PRIVATES[type(one)].split()
            if not hasattr(one, name)
        }
        assert {type(one) for one in made} == set(PRIVATES)
    finally:
        await coordinator.close()
        await fetcher.close()
        await consumer.stop()
        await admin.close()
        await give_up(producer)


def test_every_private_attribute_that_we_use_is_listed() -> None:
    folder = Path(inside.__file__).parent
    used = {name for file in folder.glob("*.py") for name in privates(file)}
    assert used == {name for names in PRIVATES.values() for name in names.split()}


async def test_a_producer_that_is_given_up_sends_no_more_and_leaves_no_failure_unseen() -> None:
    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    producer = AIOKafkaProducer(enable_idempotence=True)
    sender = producer._sender
    # Where `start` puts the task that sends for ever.
    assert sender.sender_task is None
    task = sender._sender_task = asyncio.create_task(asyncio.Event().wait())
    accumulator = producer._message_accumulator
    producer._txn_manager.set_pid_and_epoch(1, 0)
    for partition in range(2):
        batch = producer.create_batch()
        batch.append(timestamp=1, key=None, value=b"row")
        place = TopicPartition("predictions", partition)
        (await accumulator.add_batch(batch, place, 1.0)).add_done_callback(seen)
    accumulator._pop_batch(OUT)  # one is under way, one waits

    await give_up(producer)
    with pytest.raises(asyncio.CancelledError):
        await task
    # What aiokafka's task does when it ends.
    accumulator.fail_all(KafkaError("ended"))
    await asyncio.sleep(0)
    del producer, sender, accumulator, batch
    gc.collect()
    assert reported == []


async def test_a_batch_waits_for_a_leader_for_longer_than_any_request() -> None:
    producer = producer_of(config.Kafka(), enable_idempotence=True)
    producer._txn_manager.set_pid_and_epoch(1, 0)
    accumulator = producer._message_accumulator
    batch = producer.create_batch()
    batch.append(timestamp=1, key=None, value=b"row")
    delivered = await accumulator.add_batch(batch, OUT, 1.0)
    (waiting,) = accumulator._batches[OUT]
    waiting._ctime -= 3600.0
    sent, is_waiting = accumulator.drain_by_nodes(ignore_nodes=())
    await asyncio.sleep(0)
    assert (dict(sent), is_waiting, delivered.done()) == ({}, True, False)
    await give_up(producer)


async def test_a_producer_that_is_given_up_is_not_reported_as_unclosed(
    recwarn: pytest.WarningsRecorder,
) -> None:
    producer = AIOKafkaProducer()
    await give_up(producer)
    del producer
    gc.collect()
    assert [str(one.message) for one in recwarn if "Unclosed" in str(one.message)] == []


class LateCluster:
    """Names no controller before it was asked again."""

    controller: object = None

    async def force_metadata_update(self) -> bool:
        self.controller = object()
        return True

    @property
    def cluster(self) -> "LateCluster":
        return self


async def test_topics_are_made_once_the_broker_names_a_controller() -> None:
    admin = AIOKafkaAdminClient()
    assert admin._client.cluster.controller is None
    admin._client = cluster = LateCluster()
    await controller_known(admin)
    assert cluster.controller is not None


class LateBroker:
    """Knows a topic from the third question on."""

    def __init__(self) -> None:
        self.asked = 0

    async def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        self.asked += 1
        code = 3 if self.asked < 3 else 0
        return [{"topic": topic, "error_code": code} for topic in topics]


@virtual_time
async def test_topics_are_there_when_the_broker_knows_them() -> None:
    broker = LateBroker()
    await topics_known(broker, ["refs"])
    assert broker.asked == 3
