"""What is read from aiokafka's consumers (connections, generation, ends that they know), and when
they ask a broker and how long it may wait.

Rule: aiokafka makes the requests; we set its pauses, and tell the worker if its loop fails.

A broker gets one request at a time. If it names every partition that we read, the broker may wait
long (`WHOLE_MS`): a record of any ends the wait. If it leaves one out, because it is paused or its
records are not taken yet, the broker may wait only briefly (`PART_MS`), because that one cannot be
asked for before the answer. aiokafka has one figure for both; always `PART_MS` would be fifty
requests a second of an idle worker. Records that are to come together are gathered by the broker
(`GATHERED_BYTES`), if it leads all partitions: in a pause of ours the first ones would wait twice,
since aiokafka asks for more only after they were taken. Private parts of aiokafka 0.14.
"""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.group import HeartbeatRequest

from penstock.adapters.kafka.group.membership import FENCED_INSTANCE_ID, GroupMember
from penstock.adapters.kafka.requests import NO_EPOCH, NamedCommit, NamedHeartbeat
from penstock.core.window.gathering import Gather
from penstock.errors import Fatal
from penstock.ports import Where


def name_each_request(consumer: AIOKafkaConsumer, fenced: Callable[[], object]) -> None:
    """Call this after the start of a consumer with an instance id, before it subscribes. `fenced`
    is called when the broker says that another member has joined under the instance id.
    """
    coordinator = consumer._coordinator
    send, instance_id = coordinator._send_req, coordinator._group_instance_id

    async def send_named(request: Any) -> Any:
        answer = await send(_named(request, instance_id))
        if FENCED_INSTANCE_ID in _codes(answer):
            fenced()
        return answer

    coordinator._send_req = send_named


def watch_topics(consumer: AIOKafkaConsumer) -> None:
    """Call this after each assignment, so that this member looks for added partitions. In aiokafka
    only the group's leader looks for them. But a leader that is restarted under its instance id
    does not learn that it leads, so no member would look.
    """
    coordinator = consumer._coordinator
    if coordinator._group_subscription is None:
        coordinator._group_subscription = set(consumer.subscription())
        coordinator._metadata_snapshot = coordinator._get_metadata_snapshot()


def _named(request: Any, instance_id: str) -> Any:
    match request:
        case HeartbeatRequest():
            member = request._group, request._generation_id, request._member_id
            return NamedHeartbeat(*member, instance_id)
        case OffsetCommitRequest():
            topics = [
                (
                    topic,
                    [
                        (number, offset, NO_EPOCH, metadata)
                        for number, offset, metadata in partitions
                    ],
                )
                for topic, partitions in request._topics
            ]
            group, generation = request._consumer_group, request._consumer_group_generation_id
            return NamedCommit(group, generation, request._consumer_id, instance_id, topics)
        case _:
            return request


def _codes(answer: Any) -> set[int]:
    topics = getattr(answer, "topics", ())
    return {
        getattr(answer, "error_code", 0),
        *(code for _, partitions in topics for *_, code in partitions),
    }


# The default of aiokafka's `fetch_max_wait_ms`. librdkafka has the same default.
WHOLE_MS = 500
# If a request leaves out a partition, the broker answers it after at most this time. The next
# request may then name that partition.
PART_MS = 20
# A broker that gathers answers at once when it has so many bytes: some 200 references.
GATHERED_BYTES = 65_536
# The pause after an answer that came early and empty. Without it, a broker that refuses the request
# would be asked 1,500 times a second.
REFUSED_S = 0.02
# The pause before the next look when a partition has no leader: about the time of an election.
STALE_S = 0.05


def client_of(client: AIOKafkaConsumer | AIOKafkaAdminClient) -> AIOKafkaClient:
    """The client's connections to the brokers, and its metadata of the cluster."""
    return client._client


def state_of(consumer: AIOKafkaConsumer, where: Where) -> Any:
    """The position and the known ends of a partition; None if the consumer does not have the
    partition.
    """
    subscription = consumer._subscription.subscription
    if subscription is None or subscription.assignment is None:
        return None
    return subscription.assignment.state_value(where)


def generation_of(consumer: AIOKafkaConsumer) -> int | None:
    """The generation of the group in which the consumer is a member. None: the group has expelled
    the consumer, and the consumer has not joined again.
    """
    generation: int = consumer._coordinator.generation
    return generation if generation >= 0 else None


def member_of(consumer: AIOKafkaConsumer, group: str, instance_id: str | None) -> GroupMember:
    """The consumer's present membership in the group. The generation is below 0 until the consumer
    has joined.
    """
    coordinator = consumer._coordinator
    return GroupMember(group, coordinator.generation, coordinator.member_id, instance_id)


def ask_patiently(consumer: AIOKafkaConsumer, gather: Gather | None = None) -> None:
    """Set, before each request, how long the broker may wait, and whether the first record ends
    that: not while it gathers. One function of aiokafka builds all requests and
    reads these figures, so wrapping that function is enough.
    """
    fetcher = consumer._fetcher
    decide = fetcher._get_actions_per_node
    brokers, brokers_of = set[int](), None

    def actions(assignment: Any) -> Any:
        nonlocal brokers_of
        leaves_out = fetcher._records or any(
            assignment.state_value(where).paused for where in assignment.tps
        )
        wait_ms = gather.wait_ms if gather and not gather.in_pauses else 0
        fetcher._fetch_min_bytes = GATHERED_BYTES if wait_ms else 1
        fetcher._fetch_max_wait_ms = wait_ms or (PART_MS if leaves_out else WHOLE_MS)
        decided = decide(assignment)
        if gather:
            if assignment is not brokers_of:
                brokers.clear()
                brokers_of = assignment
            brokers.update(node for node, _ in decided[0])
            gather.in_pauses = len(brokers) > 1
        return decided

    fetcher._get_actions_per_node = actions


async def ask_with_pauses(consumer: AIOKafkaConsumer, failed: Callable[[Fatal], None]) -> None:
    """Make aiokafka pause after a refused request, and while a partition has no leader. Call this
    before partitions are assigned. If aiokafka's loop fails, nothing is read any more, and aiokafka
    would only log the reason. So `failed` is called with the reason.
    """
    fetcher = consumer._fetcher
    fetcher._fetch_task.cancel()
    await asyncio.wait([fetcher._fetch_task])
    _pause_after_refusals(fetcher)
    _pause_without_leaders(fetcher)
    fetcher._fetch_task = asyncio.get_running_loop().create_task(_ask(fetcher, failed))


async def _ask(fetcher: Any, failed: Callable[[Fatal], None]) -> None:
    try:
        await fetcher._fetch_requests_routine()
    except kafka_errors.KafkaError as error:
        # Otherwise the consumer's `stop` would raise the failure once more.
        fetcher._pending_tasks = {task for task in fetcher._pending_tasks if not task.done()}
        why = error.__cause__ or error
        failure = Fatal(f"Kafka's client failed while it read the input topic: {why!r}")
        failure.__cause__ = error
        failed(failure)


def _pause_after_refusals(fetcher: Any) -> None:
    """Make aiokafka pause after an early answer without records. A broker that has no records waits
    before it answers, so such an answer is a refusal, and the broker would refuse the next request
    at once.
    """
    fetch, now_s = fetcher._proc_fetch_request, asyncio.get_running_loop().time

    async def rested(assignment: Any, node: int, request: Any) -> bool:
        began_s, brought = now_s(), False
        # A cancelled request returns normally, because aiokafka awaits the tasks it cancels.
        with suppress(asyncio.CancelledError):
            brought = await fetch(assignment, node, request)
            is_early = now_s() - began_s < request._max_wait_ms / 2000
            if is_early and not brought and assignment.active:
                await asyncio.sleep(REFUSED_S)
        return brought

    fetcher._proc_fetch_request = rested


def _pause_without_leaders(fetcher: Any) -> None:
    decide, now_s = fetcher._get_actions_per_node, asyncio.get_running_loop().time
    asked_s = -math.inf

    def actions(assignment: Any) -> Any:
        nonlocal asked_s
        asked, unknown, rest_s, is_stale, resumes = decide(assignment)
        if is_stale:
            rest_s = min(rest_s, STALE_S)
            is_stale = now_s() - asked_s >= STALE_S
            asked_s = now_s() if is_stale else asked_s
        return asked, unknown, rest_s, is_stale, resumes

    fetcher._get_actions_per_node = actions
