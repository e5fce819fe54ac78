"""Which partitions are read by a position of a topic that no longer exists."""

from uuid import UUID

from aiokafka import TopicPartition

from penstock.adapters.kafka.positions import Incarnations

REFS = [TopicPartition("refs", number) for number in range(3)]
OTHER = TopicPartition("other", 0)


def test_a_topic_with_another_id_was_made_again() -> None:
    incarnations = Incarnations()
    incarnations.learn({"refs": b"1", "other": b"2"})
    assert incarnations.begin([*REFS[:2], OTHER], held=[]) == []
    incarnations.learn({"refs": b"3", "other": b"2"})
    assert incarnations.stale == set(REFS[:2])
    assert incarnations.begin(REFS[:1], held=[*REFS[:2], OTHER]) == REFS[:1]
    assert incarnations.stale == {REFS[1]}, "its position is still the former one"
    assert incarnations.begin(REFS[1:2], held=REFS[:2]) == REFS[1:2]
    incarnations.learn({"refs": b"3"})
    assert not incarnations.stale


def test_an_id_is_written_as_kafkas_own_tools_write_it() -> None:
    incarnations = Incarnations()
    incarnations.learn({"refs": UUID("b8ed5a5f-063d-473a-943f-946500f23227").bytes})
    assert incarnations.of("refs") == "uO1aXwY9RzqUP5RlAPIyJw"
    assert incarnations.of("other") is None


def test_a_topic_that_is_away_for_a_moment_or_has_no_id_was_not_made_again() -> None:
    incarnations = Incarnations()
    incarnations.begin(REFS, held=[])
    incarnations.learn({"refs": b"1"})
    assert not incarnations.stale, "its first id"
    incarnations.begin(REFS, held=[])
    incarnations.learn({})
    incarnations.learn({"refs": b"1"})
    assert not incarnations.stale


def test_of_a_partition_that_another_member_had_meanwhile_the_commit_is_trusted() -> None:
    incarnations = Incarnations()
    incarnations.learn({"refs": b"1"})
    incarnations.begin(REFS, held=[])
    incarnations.begin(REFS[:1], held=[])
    incarnations.learn({"refs": b"2"})
    assert incarnations.begin(REFS, held=[]) == REFS[:1]
