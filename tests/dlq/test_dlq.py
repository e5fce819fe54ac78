"""`penstock dlq` on a broker: which letters it shows, and what it sends back where."""

import asyncio
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import OffsetAndMetadata
from click.testing import CliRunner, Result

from penstock import config
from penstock.adapters.kafka.reader import open_reader
from penstock.adapters.kafka.sink import KafkaSink
from penstock.commands.root import cli
from penstock.core.progress.cursor import PartitionProgress, Position
from penstock.errors import EXIT_USAGE, Fatal
from penstock.messages.dead_letter import Unanswered, dead_letter
from penstock.messages.prediction import Source
from penstock.messages.reference import Reference
from penstock.ports import Outgoing
from penstock.process.asyncio_additions import SystemClock
from penstock.tools.dlq.redrive import fields_of_results

pytest.importorskip("confluent_kafka")

NOON_MS = 1_795_262_400_000  # 2026-11-21T12:00:00Z
INLINE = orjson.dumps({"stream": "tiny", "inline": [[1], ["x"], [2]]})


def letter(offset: int, *, key: str | None = "a.csv", partition: int = 2, **more: Any) -> bytes:
    reference = None if key is None else Reference(bucket="b", key=key, etag='"1"', size=7)
    fields: dict[str, Any] = {
        "code": "model_rejected",
        "stage": "predict",
        "message": "refused",
        "attempts": 1,
        "stream": "site-1/cam",
        "source": Source("refs", partition, offset),
        "object_index": 0,
        "reference": reference,
        "version": '"1"',
        "member": None,
        "rows": ((17, 18),),
        "event_time": None,
        "failed_at": NOON_MS + offset * 1000,
        "model": "rows",
        "value": INLINE,
    }
    return dead_letter(Unanswered(**(fields | more)))


def file(
    cfg: config.Config, *values: bytes, stopped_at: int | None = None, asked: Sequence[bytes] = ()
) -> None:
    """Put letters on the topic, and the mark of a line that stopped in partition 2. `asked`: the
    messages of this partition.
    """

    async def work() -> None:
        sink = KafkaSink(cfg.kafka, SystemClock())
        await sink.start()
        topic = cfg.output.dead_letter_topic
        for name in (topic, cfg.kafka.input_topic):
            await sink.partitions(name)  # it comes to be
        await (await sink.send(Outgoing(topic, 2, [None] * len(values), list(values))))
        if asked:
            keys: list[bytes | None] = [None] * len(asked)
            await (await sink.send(Outgoing(cfg.kafka.input_topic, 2, keys, list(asked))))
        await sink.stop()
        if stopped_at is not None:
            async with AIOKafkaConsumer(
                bootstrap_servers=cfg.kafka.bootstrap_servers,
                group_id=cfg.kafka.group,
                enable_auto_commit=False,
            ) as consumer:
                where = TopicPartition(cfg.kafka.input_topic, 2)
                consumer.assign([where])
                position = Position(PartitionProgress(stopped_at - 2), (stopped_at,), "0000")
                mark = OffsetAndMetadata(*position.commit)
                await consumer.commit({where: mark})

    asyncio.run(work())


def dlq(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, ["dlq", *arguments])
    assert result.exit_code == code, result.output
    return result


def listed(*arguments: str) -> list[str]:
    """The ids of the letters that `dlq list --json` shows."""
    lines = dlq("list", "--json", *arguments).stdout.splitlines()
    return [orjson.loads(line)["id"] for line in lines]


def asked(cfg: config.Config) -> list[tuple[int, bytes | None, Any]]:
    """Partition, key and document of everything on the input topic."""
    found: list[tuple[int, bytes | None, Any]] = []

    async def work() -> None:
        async with open_reader(cfg.kafka, "read_committed") as reader:
            spans = await reader.spans(cfg.kafka.input_topic)
            await reader.read(
                cfg.kafka.input_topic,
                spans,
                lambda partition, _, key, value: found.append(
                    (partition, key, orjson.loads(value or b""))
                ),
                lambda _: None,
            )

    asyncio.run(work())
    return found


def test_letters_are_chosen_by_code_stream_time_and_place(cfg: config.Config) -> None:
    file(
        cfg,
        letter(0),
        letter(1, code="bad_row"),
        letter(2, stream="site-2/cam"),
        letter(3, failed_at=NOON_MS + 86_400_000),
    )
    assert listed() == ["2/0", "2/1", "2/2", "2/3"]
    assert listed("--code", "bad_row") == ["2/1"]
    assert listed("--code", "bad_row", "--code", "model_rejected", "--stream", "site-2/*") == [
        "2/2"
    ]
    assert listed("--since", "2026-11-21T12:00:01", "--until", "2026-11-22") == ["2/1", "2/2"]
    assert listed("--since", "2026-11-21T14:00:01+02:00", "--code", "bad_row") == ["2/1"]
    assert listed("--id", "2/3", "--id", "2/0") == ["2/0", "2/3"]
    assert len(listed("--since", "20000d")) == 4
    assert listed("--until", "20000d") == []


def test_a_letter_in_json_is_the_letter_and_the_counts_are_told_beside_it(
    cfg: config.Config,
) -> None:
    file(cfg, letter(0), letter(1, code="bad_row"), b"junk")
    result = dlq("list", "--json")
    first, second = map(orjson.loads, result.stdout.splitlines())
    assert first == {"id": "2/0", **orjson.loads(letter(0))}
    assert second["code"] == "bad_row"
    assert result.stderr.strip() == (
        "2 dead letters: model_rejected 1, bad_row 1; 1 records are not dead letters"
    )


def test_a_code_that_there_is_not_is_refused_and_takes_no_letter(cfg: config.Config) -> None:
    file(cfg, letter(0, code="bad_row"))
    for command in ("list", "redrive"):
        output = dlq(command, "--code", "bad_rwo", code=EXIT_USAGE).output
        assert "'bad_rwo' is not one of" in output
        assert "'bad_row'" in output
    assert asked(cfg) == []


def test_the_table_shows_the_newest_and_counts_all(cfg: config.Config) -> None:
    each = (letter(n, rows=((n, n + 2),), message=f"the {n}th") for n in range(10))
    file(cfg, *each)
    shown = dlq("list", "--limit", "3").stdout
    assert [number for number in range(10) if f"2/{number}" in shown] == [7, 8, 9]
    assert "2026-11-21 12:00:09" in shown
    assert "9-10" in shown
    assert "7 older ones are not shown" in shown
    assert "10 dead letters: model_rejected 10" in shown


def test_hostile_texts_are_shown_and_steer_no_terminal(cfg: config.Config) -> None:
    file(cfg, letter(0, stream="\x1b[2J[red]x", message="a\r\nb\x07"))
    shown = dlq("list").stdout
    assert "\\x1b[2J[red]x" in shown
    assert "a\\r\\nb\\x07" in shown
    assert not {"\x1b", "\r", "\x07"} & set(shown)


def test_a_line_that_stands_still_is_told_from_any_machine(cfg: config.Config) -> None:
    file(cfg, letter(0), stopped_at=1042)
    words = "line stopped: group penstock stands still at refs/2/1042"
    assert words in dlq("list").stdout
    assert words in dlq("list", "--json").stderr


def test_the_stream_of_a_line_that_stands_still_is_named(cfg: config.Config) -> None:
    file(cfg, letter(0), stopped_at=2, asked=[b'{"bucket":"b","key":"site-1/cam/a.csv"}'] * 3)
    assert "say penstock dlq resume STREAM (STREAM is site-1/cam): it" in dlq("list").stdout


def test_without_letters_and_stops_there_is_little_to_say(cfg: config.Config) -> None:
    file(cfg, letter(0))
    assert dlq("list", "--code", "bad_row").stdout == "0 dead letters\n"


def test_exactly_the_failed_rows_go_back_to_where_they_came_from(cfg: config.Config) -> None:
    file(cfg, letter(5), letter(6, key="b.csv", partition=1, rows=((20, None),)), letter(7))
    result = dlq("redrive", "--code", "model_rejected", "--id", "2/0", "--id", "2/1")
    assert "sent 2 of them back to refs" in result.stdout
    about = {"bucket": "b", "etag": '"1"', "size": 7, "stream": "site-1/cam"}
    assert sorted(asked(cfg), key=lambda found: -found[0]) == [
        (2, b"site-1/cam", about | {"key": "a.csv", "rows": [[17, 18]]}),
        (1, b"site-1/cam", about | {"key": "b.csv", "rows": [[20, None]]}),
    ]


def test_the_latest_object_is_asked_for_without_a_version(cfg: config.Config) -> None:
    file(cfg, letter(5))
    dlq("redrive", "--latest")
    [(_, _, reference)] = asked(cfg)
    assert reference == {"bucket": "b", "key": "a.csv", "stream": "site-1/cam", "rows": [[17, 18]]}


def test_whole_objects_are_asked_for_once_each(cfg: config.Config) -> None:
    """However many letters their rows have, so that each has one result again."""
    file(cfg, letter(5), letter(5, rows=((20, 22),)), letter(6), letter(7, key="b.csv"))
    result = dlq("redrive", "--whole-objects")
    assert "sent 2 of them back to refs" in result.stdout
    assert "2 repeat" in result.stdout
    found = [document for _, _, document in asked(cfg)]
    assert [one["key"] for one in found] == ["a.csv", "b.csv"]
    assert not any("rows" in one for one in found)


def test_whole_objects_of_a_named_version_are_left_to_latest(cfg: config.Config) -> None:
    """The result of a former version would replace that of a later one."""
    named = Reference(bucket="b", key="a.csv", version_id="v1")
    file(cfg, letter(5, reference=named))
    output = dlq("redrive", "--whole-objects").stdout
    assert "sent 0 of them back" in output
    assert "1 name a version of their object" in output
    dlq("redrive", "--whole-objects", "--latest")
    [(_, _, reference)] = asked(cfg)
    assert "version_id" not in reference


def test_results_that_a_new_message_does_not_replace_are_told(
    cfg: config.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    file(cfg, letter(5), letter(6, key="b.csv", event_time=NOON_MS))
    monkeypatch.setenv("PENSTOCK_OUTPUT__OBJECTS", "s3://out/{date}/{bucket}/{key}.jsonl")
    output = dlq("redrive", "--whole-objects", "--dry-run").stdout
    assert "1 have no event_time" in output
    template = "s3://out/{partition}/{offset}.jsonl"
    with pytest.raises(Fatal, match="name them by"):
        fields_of_results(config.Config(output=config.Output(objects=template)))


def test_a_dry_run_sends_nothing_and_says_what_it_would(cfg: config.Config) -> None:
    file(cfg, letter(5), letter(6))
    assert "would send 2 of them back to refs" in dlq("redrive", "--dry-run").stdout
    assert asked(cfg) == []


def test_what_a_crash_wrote_twice_is_sent_once(cfg: config.Config) -> None:
    file(cfg, letter(5), letter(6), letter(5, failed_at=NOON_MS + 99_000))
    assert "1 repeat what another letter asks for" in dlq("redrive").stdout
    assert len(asked(cfg)) == 2


def test_rows_that_two_lives_shared_out_otherwise_to_letters_are_sent_once(
    cfg: config.Config,
) -> None:
    file(
        cfg,
        letter(5, rows=((1, 2), (5, 6), (9, 10))),
        letter(5, rows=((1, 2), (5, 6))),
        letter(5, rows=((9, 10), (13, 14), (17, 20))),
        letter(5, rows=((4, 7), (19, None))),
    )
    assert "1 repeat what another letter asks for" in dlq("redrive").stdout
    assert [one["rows"] for _, _, one in asked(cfg)] == [
        [[1, 2], [5, 6], [9, 10]],
        [[13, 14], [17, 20]],
        [[4, 5], [6, 7], [20, None]],
    ]


def test_what_two_objects_or_two_models_failed_at_is_two_letters(cfg: config.Config) -> None:
    """One message may name an object twice, of two stores for instance; and a row may be refused
    by each of the models that it is for.
    """
    file(
        cfg,
        letter(5),
        letter(5, object_index=1, reference=Reference(bucket="b", key="a.csv", store="other")),
        letter(5, model="rows-v2", reference=Reference(bucket="b", key="a.csv", model="rows-v2")),
    )
    assert "another letter" not in dlq("redrive").stdout
    found = [(one.get("store"), one.get("model")) for _, _, one in asked(cfg)]
    assert found == [(None, None), ("other", None), (None, "rows-v2")]


def test_letters_of_a_topic_that_was_made_again_are_no_repeats_of_those_before(
    cfg: config.Config,
) -> None:
    file(
        cfg,
        letter(5),
        letter(5, reference=Reference(bucket="b", key="a.csv", store="other")),
        letter(5, key="b.csv"),
    )
    assert "another letter" not in dlq("redrive").stdout
    found = [(one.get("store"), one["key"]) for _, _, one in asked(cfg)]
    assert found == [(None, "a.csv"), ("other", "a.csv"), (None, "b.csv")]


def test_messages_without_a_reference_are_named_and_sent_whole_when_asked_for(
    cfg: config.Config,
) -> None:
    file(
        cfg,
        letter(5, key=None, stream="tiny", rows=((1, 2),)),
        letter(5, key=None, stream="tiny", rows=((2, 3),), value=None),
        letter(6, key=None, value=None, rows=None),
    )
    output = dlq("redrive").stdout
    assert "3 have no reference" in output
    assert "--originals" in output
    assert asked(cfg) == []
    output = dlq("redrive", "--originals").stdout
    assert "1 as whole original messages" in output
    assert "1 repeat what another letter asks for" in output
    assert "1 have neither reference nor bytes" in output
    assert asked(cfg) == [(2, b"tiny", orjson.loads(INLINE))]


def test_a_message_is_found_in_its_first_letter_though_only_a_later_one_was_chosen(
    cfg: config.Config,
) -> None:
    later = letter(5, key=None, stream="tiny", code="bad_row", value=None)
    file(cfg, letter(5, key=None, stream="tiny"), letter(7, key=None), later, later)
    assert (
        "1 as whole original messages" in dlq("redrive", "--originals", "--code", "bad_row").stdout
    )
    assert asked(cfg) == [(2, b"tiny", orjson.loads(INLINE))]


def test_a_letter_whose_bytes_are_damaged_is_no_reason_to_end(cfg: config.Config) -> None:
    good = letter(5, key=None)
    file(cfg, good.replace(b64encode(INLINE), b"A"), letter(6))
    output = dlq("redrive", "--originals").stdout
    assert "1 have neither reference nor bytes" in output
    assert len(asked(cfg)) == 1


def test_letters_of_another_topic_go_where_their_stream_s_hash_says(cfg: config.Config) -> None:
    file(cfg, letter(5, source=Source("old-refs", 2, 5)), letter(6, source=Source("refs", 99, 6)))
    dlq("redrive")
    assert [key for _, key, _ in asked(cfg)] == [b"site-1/cam"] * 2
    assert len({partition for partition, _, _ in asked(cfg)}) == 1


@pytest.mark.parametrize(
    ("option", "text", "says"),
    [
        ("--since", "yesterday", "neither ISO-8601 nor an age"),
        ("--until", "12", "neither ISO-8601 nor an age"),
        ("--id", "17", "PARTITION/OFFSET"),
    ],
)
def test_a_wrong_choice_is_told_before_anything_is_read(option: str, text: str, says: str) -> None:
    assert says in dlq("redrive", option, text, code=2).stderr
