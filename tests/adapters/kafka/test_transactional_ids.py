"""A worker's producers have ids of their own, and a worker with a name has them again."""

from msgspec.structs import replace

from penstock import config
from penstock.adapters.kafka.exactly_once.abandoned_transactions import id_of, is_of
from penstock.adapters.kafka.exactly_once.transactions import KafkaProducers
from penstock.adapters.kafka.group.membership import GroupMember
from penstock.process.asyncio_additions import SystemClock

KAFKA = config.Kafka(group="a/b")


def ids(kafka: config.Kafka) -> set[str]:
    producers = KafkaProducers(
        kafka, SystemClock(), {}, lambda topic: GroupMember("", 1, "m", None)
    )
    return {producers.id_of(number) for number in range(3)}


def test_no_two_workers_share_an_id() -> None:
    assert len(ids(KAFKA) | ids(KAFKA)) == 6


def test_a_worker_that_is_started_again_in_its_place_has_the_ids_of_before() -> None:
    named = replace(KAFKA, instance_id="worker-3")
    assert ids(named) == ids(named) == {f"a/b/worker-3/{number}" for number in range(3)}


def test_an_id_says_whose_group_it_is() -> None:
    message = id_of("a/b", "c") + "1"
    assert is_of(message, "a/b")
    assert not any(is_of(message, other) for other in ("a", "a/b/c", "b", ""))
    assert not is_of("a/b/2", "a/b")
