"""`verify` and its command on a broker: what is on the topics is what is judged."""

import asyncio

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import OffsetAndMetadata
from click.testing import CliRunner

from penstock import config
from penstock.adapters.kafka.sink import KafkaSink
from penstock.commands.root import cli
from penstock.core.progress.cursor import PartitionProgress, encode
from penstock.core.rows.origin import Cursor, digest
from penstock.ports import Outgoing
from penstock.process.asyncio_additions import SystemClock
from penstock.tools.verify.read_topics import verify
from tests.verify.topics import Topics

pytest.importorskip("confluent_kafka")


def sound() -> Topics:
    topics = Topics(partitions=2)
    for number in range(2):
        for _ in range(3):
            offset = topics.ask(partition=number)
            topics.answer(offset, range(100), 100, partition=number)
    topics.predictions[0] += topics.out[-50:]
    return topics


async def publish(
    cfg: config.Config, topics: Topics, committed: int | None = None, metadata: str = ""
) -> None:
    sink = KafkaSink(cfg.kafka, SystemClock())
    await sink.start()
    for topic, logs in (
        (cfg.kafka.input_topic, topics.refs),
        (cfg.output.topic, topics.predictions),
        (cfg.output.dead_letter_topic, topics.letters),
    ):
        await sink.partitions(topic)  # it comes to be
        for number, log in logs.items():
            if log:
                keys, values = [key for key, _ in log], [value or b"" for _, value in log]
                await (await sink.send(Outgoing(topic, number, keys, values)))
    await sink.stop()
    if committed is not None:
        await commit(cfg, OffsetAndMetadata(committed, metadata))


async def commit(cfg: config.Config, offset: OffsetAndMetadata) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cfg.kafka.bootstrap_servers,
        group_id=cfg.kafka.group,
        enable_auto_commit=False,
    )
    await consumer.start()
    part = TopicPartition(cfg.kafka.input_topic, 0)
    consumer.assign([part])
    await consumer.commit({part: offset})
    await consumer.stop()


async def test_all_partitions_are_read_to_their_end_and_repeats_once_more(
    cfg: config.Config,
) -> None:
    await publish(cfg, sound())
    shown: list[tuple[int, int]] = []
    report = await verify(cfg, progress=lambda done, total: shown.append((done, total)))
    assert report.violations == ()
    assert (report.rows, report.objects, report.duplicates) == (600, 6, 50)
    assert shown[-1] == (656 + 350, 656 + 350)
    assert shown == sorted(shown)


async def test_only_what_is_committed_is_judged_where_that_is_asked(cfg: config.Config) -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(5), 5)
    topics.ask()
    await publish(cfg, topics, committed=1)
    assert (await verify(cfg)).violated == {"lost": 1}
    assert (await verify(cfg, until="committed")).ok


async def test_a_commit_ahead_is_found_at_the_broker(cfg: config.Config) -> None:
    topics = Topics()
    topics.ask()
    await publish(cfg, topics, committed=1)
    assert (await verify(cfg)).violated == {"lost": 1, "commit_ahead": 1}


async def test_a_cursor_ahead_is_found_at_the_broker(cfg: config.Config) -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(3))
    ahead = PartitionProgress(0, rows={(0, 0): Cursor(4, digest("b/a", "1"))})
    await publish(cfg, topics, committed=0, metadata=encode(ahead))
    report = await verify(cfg, until="committed")
    assert report.violated == {"commit_ahead": 1}
    assert "row 3," in report.violations[0].text


def test_the_command_ends_with_0_and_a_sentence(cfg: config.Config) -> None:
    asyncio.run(publish(cfg, sound()))
    result = CliRunner().invoke(cli, ["verify"])
    assert result.exit_code == 0
    assert result.stdout.endswith(
        "600 rows of 1 stream in 6 objects: in order, none lost, "
        "50 records written twice (same id, same answer).\n"
    )


def test_the_command_ends_with_1_and_names_the_violation(cfg: config.Config) -> None:
    topics = sound()
    del topics.predictions[1][7]
    asyncio.run(publish(cfg, topics))
    result = CliRunner().invoke(cli, ["verify"])
    assert result.exit_code == 1
    assert "row 7 of 100 is missing" in result.stdout
    assert result.stdout.endswith("VIOLATED: 1 lost.\n")


def test_the_command_ends_with_1_where_a_repeat_breaks_the_promise(
    cfg: config.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_DELIVERY__GUARANTEE", "exactly_once")
    asyncio.run(publish(cfg, sound()))
    result = CliRunner().invoke(cli, ["verify"])
    assert result.exit_code == 1
    assert result.stdout.endswith("VIOLATED: 50 repeated.\n")


def test_the_command_prints_json(cfg: config.Config) -> None:
    topics = sound()
    topics.out[0], topics.out[1] = topics.out[1], topics.out[0]
    asyncio.run(publish(cfg, topics))
    result = CliRunner().invoke(cli, ["verify", "--json", "--until", "end", "--read-committed"])
    assert result.exit_code == 1
    report = orjson.loads(result.stdout)
    assert (report["ok"], report["violated"]) == (False, {"disorder": 1})
    assert report["violations"][0]["topic"] == "predictions"
