"""`penstock verify`: reads the input, output and dead-letter topics, and feeds them to the judge.

Rule: the committed offsets are asked for before the ends of the output topics, so the answers to
all committed messages are read.

If several models answer an object, there is a judge for each; all objects with a single model share
one, because the shares of a split may change. For topics that are still written (`penstock demo`),
a reference is fed before its answers, and memory holds only `KEPT` records a partition.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import Struct

from penstock import config
from penstock.adapters.kafka.keyed_writer import hashed
from penstock.adapters.kafka.reader import OnRead, Reader, ReadingProgress, Spans, open_reader
from penstock.adapters.stores.choice import open_objects, places_of_caller, with_clouds
from penstock.adapters.stores.local_files import LocalObjects
from penstock.core.routing.model_routes import Routes, place_of
from penstock.core.routing.store_choice import StoreChoice
from penstock.core.routing.stream_keys import KeyTimes, StreamNames
from penstock.messages.prediction import Source
from penstock.ports import Commit
from penstock.settings.routes import routes_of
from penstock.tools.verify.fields import AskedFields, Fields, asked_of
from penstock.tools.verify.findings import VerifyReport, together
from penstock.tools.verify.judge import Judge
from penstock.tools.verify.records_and_open_objects import NOT_JSON, each_record, id_of
from penstock.tools.verify.result_objects import (
    AT_A_TIME,
    ResultClaim,
    StoredContent,
    is_replaced,
    look,
)
from penstock.tools.verify.scope_and_input_topic import (
    NOT_OURS,
    Message,
    Scope,
    Wants,
    message_of,
    wants,
)

# How many records of a partition are kept: as many as two cores write in two seconds at their
# highest rate. This is enough, because a worker that takes over repeats only the rows since the
# last commit, and that is half a second old.
KEPT = 20_000
# When this many records have come without a repeat, the index by id is dropped.
QUIET = 2_000


class LiveJudge:
    """Feed `references`, `answers` and `dead_letters` as they come, then call `report` once. The
    records are those that the Kafka client returns. Only `report` reads `until` and `committed` of
    `scope`, so they may change until then.
    """

    def __init__(self, scope: Scope, *, kept: int = KEPT) -> None:
        self._judge = Judge(scope)
        self._kept = kept
        self._partitions: dict[int, _Recent] = {}

    def references(self, partition: int, records: Iterable[Any]) -> None:
        for record in records:
            self._judge.reference(partition, record.offset, record.key, record.value)

    def answers(self, partition: int, records: Iterable[Any]) -> None:
        judge, repeats = self._judge, self._judge.repeats
        recent = self._partitions.setdefault(partition, _Recent(self._kept))
        for record in records:
            judge.answer(partition, record.offset, record.key, record.value)
            if judge.repeats != repeats:
                repeats = judge.repeats
                value = record.value or b""
                for content in recent.with_first(value):
                    judge.compare(partition, record.offset, None, content)
            recent.add(record.value or b"")

    def dead_letters(self, partition: int, records: Iterable[Any]) -> None:
        for record in records:
            self._judge.dead_letter(partition, record.offset, record.key, record.value)

    def report(self) -> VerifyReport:
        return self._judge.report()


class _Recent:
    """The latest records of an output partition. While repeats come, it also keeps an index by
    id.
    """

    def __init__(self, kept: int) -> None:
        self._values: deque[bytes] = deque(maxlen=kept)
        self._by_id: dict[str, bytes] | None = None
        self._quiet = 0

    def add(self, value: bytes) -> None:
        self._values.append(value)
        if self._by_id is None:
            return
        self._quiet += 1
        if self._quiet > QUIET:
            self._by_id = None
        else:
            self._by_id.setdefault(id_of(value), value)

    def with_first(self, value: bytes) -> tuple[bytes, ...]:
        """Two records with one id: the first that is kept, and then this one. Empty if no record
        with this id is kept any more. Then the judge reports that the row came after its object's
        end.
        """
        self._quiet = 0
        if self._by_id is None:
            self._by_id = {}
            for each in self._values:
                self._by_id.setdefault(id_of(each), each)
        first = self._by_id.get(id_of(value))
        return () if first is None else (first, value)


class _Said(Struct, gc=False):
    """The fields of a record or a letter that name model and object. A record tells the object's
    index in its id, a letter in `object_index`.
    """

    model: str = ""
    id: str = ""
    source: Source | None = None
    object_index: int = 0

    @property
    def index(self) -> int:
        parts = self.id.split("/")
        is_record = len(parts) > 1 and parts[-2].isdecimal()
        return int(parts[-2]) if is_record else self.object_index


_said = msgspec.json.Decoder(_Said).decode


class SeveralJudges:
    """Has the methods of `Judge`, and judges all models together."""

    def __init__(self, scope: Scope, routes: Routes) -> None:
        self._routes = routes
        self._naming, self._times = scope.naming, scope.times
        self._fields = AskedFields.of(scope)
        self._references = self._ignored = 0
        names = [
            model for route in routes.routes if len(route.models) > 1 for model in route.models
        ]
        self._alone = Judge(scope, self._fields)
        self._of = {
            name: Judge(replace(scope, place_of=partial(place_of, model=name)), self._fields)
            for name in dict.fromkeys(names)
        }

    @property
    def repeated(self) -> set[int]:
        return self._alone.repeated.union(*(judge.repeated for judge in self._of.values()))

    def reference(
        self, partition: int, offset: int, key: bytes | None, value: bytes | None
    ) -> None:
        message = message_of(value)
        wanted = wants(message)
        self._references += bool(wanted)
        self._ignored += not wanted
        self._fields[partition].add(
            offset, asked_of(message, key, partition, self._naming, self._times)
        )
        asked = self._models(partition, key, message) if wanted else []
        for name, judge in self._of.items():
            judge.ask(partition, offset, _ours(wanted, [name in models for models in asked]))
        self._alone.ask(partition, offset, _ours(wanted, [not models for models in asked]))

    def _models(self, partition: int, key: bytes | None, message: Message) -> list[tuple[str, ...]]:
        """For each object of the message: the models that answer it if there are several, else an
        empty tuple.
        """
        asked = asked_of(message, key, partition, self._naming, self._times)
        return [
            () if message is None or fields.model else self._several(fields) for fields in asked
        ]

    def _several(self, fields: Fields) -> tuple[str, ...]:
        bucket, key, _ = fields.object or (None, None, None)
        models = self._routes.of(fields.stream, bucket, key)
        return models if len(models) > 1 else ()

    def answer(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        self._judge(value).answer(partition, offset, key, value)

    def compare(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        self._judge(value).compare(partition, offset, key, value)

    def dead_letter(
        self, partition: int, offset: int, key: bytes | None, value: bytes | None
    ) -> None:
        self._judge(value).dead_letter(partition, offset, key, value)

    def _judge(self, value: bytes | None) -> Judge:
        """If the record's model is one of several that were asked for the object: the judge of this
        model. Otherwise: the judge of all objects with a single model.
        """
        try:
            answer = _said(value or b"")
        except NOT_JSON:
            return self._alone
        judge = self._of.get(answer.model)
        if judge is None:
            return self._alone
        if answer.source is not None and not judge.asks_at(answer.source, answer.index):
            return self._alone
        return judge

    @property
    def claims(self) -> list[tuple[Judge, list[ResultClaim]]]:
        return [
            claim for partition in (self._alone, *self._of.values()) for claim in partition.claims
        ]

    def report(self) -> VerifyReport:
        reports = [self._alone.report(), *(judge.report() for judge in self._of.values())]
        # All judges see the same messages, so messages are counted here. Several judges may see the
        # same stream, so the judges' counts of streams must not be summed. Only one judge sees a
        # record, so their counts of `outside` can be summed.
        return msgspec.structs.replace(
            together(reports),
            references=self._references,
            ignored=self._ignored,
            streams=max(report.streams for report in reports),
            outside=sum(report.outside for report in reports),
        )


def _ours(wanted: Wants, are_ours: Sequence[bool]) -> Wants:
    if not any(are_ours):
        return ()
    return tuple(
        want if is_ours else NOT_OURS for want, is_ours in zip(wanted, are_ours, strict=True)
    )


Until = Literal["end", "committed"]
# The judge of an object, and the claims about its result.
Claimed = tuple[Judge, list[ResultClaim]]


async def verify(
    cfg: config.Config,
    *,
    committed: bool = False,
    until: Until = "end",
    progress: OnRead = lambda _done, _total: None,
) -> VerifyReport:
    """Judge the input topics. `until`: with "end", all records that the input topics hold now are
    judged; with "committed", only those before the group's committed offsets. `committed`: True if
    records of open and of aborted transactions on the output topics are left out. With exactly-once
    delivery they are always left out, because the promise holds only for readers that leave them
    out.
    """
    isolation = "read_committed" if committed else cfg.delivery.isolation
    async with (
        open_reader(cfg.kafka, cfg.kafka.isolation) as inputs,
        open_reader(cfg.kafka, isolation) as outputs,
    ):
        reports = [
            await _of_input(cfg.of_input(topic), inputs, outputs, until, progress)
            for topic in await inputs.inputs()
        ]
        return together(reports)


async def _of_input(
    cfg: config.Config, inputs: Reader, outputs: Reader, until: Until, progress: OnRead
) -> VerifyReport:
    """Judge one input topic against the whole output topics, as if there were no other input topic.
    The input is read as workers read it: by default, this includes records of aborted transactions.
    """
    topic = cfg.kafka.input_topic
    asked = await inputs.spans(topic)
    committed = await inputs.committed(topic, asked)
    answers = await outputs.spans(cfg.output.topic)
    letters = await outputs.spans(cfg.output.dead_letter_topic)
    scope = _scope(cfg, asked, committed, until, len(answers))
    judge = _judge(cfg, replace(scope, topic_id=await inputs.topic_id(topic)))
    reading = ReadingProgress(progress)
    reading.expect(asked, answers, letters)
    await inputs.read(topic, asked, judge.reference, reading.passed)
    await outputs.read(cfg.output.topic, answers, each_record(judge.answer), reading.passed)
    letters_of = cfg.output.dead_letter_topic
    await outputs.read(letters_of, letters, judge.dead_letter, reading.passed)
    again = {partition: answers[partition] for partition in judge.repeated}
    reading.expect(again)
    await outputs.read(cfg.output.topic, again, each_record(judge.compare), reading.passed)
    await _follow(cfg, judge.claims, reading)
    return judge.report()


async def _follow(cfg: config.Config, waiting: Sequence[Claimed], reading: ReadingProgress) -> None:
    """Read the result objects that the records name, each once, and judge them. `AT_A_TIME` of them
    are read in parallel.
    """
    if not waiting:
        return
    of_url = by_url(waiting)
    reading.total += len(of_url)
    known = with_clouds(cfg)
    places = StoreChoice(places_of_caller(known))
    async with (
        aclosing(LocalObjects(partial(open_objects, known, lazily=True))) as objects,
        asyncio.TaskGroup() as tasks,
    ):

        async def follow_some() -> None:
            while of_url:
                url, answered = of_url.popitem()
                judge_results(answered, await look(objects, places, url))
                reading.passed(1)

        for _ in range(min(AT_A_TIME, len(of_url))):
            tasks.create_task(follow_some())


def by_url(waiting: Iterable[Claimed]) -> dict[str, list[Claimed]]:
    urls: dict[str, list[Claimed]] = {}
    for judge, claims in waiting:
        urls.setdefault(claims[-1].result.url, []).append((judge, claims))
    return urls


def judge_results(answered: Sequence[Claimed], content: StoredContent | str) -> None:
    """Judge the results of all objects whose results have the same URL, and so the same content."""
    claimed = [claim for _, claims in answered for claim in claims]
    for judge, claims in answered:
        if is_replaced(claims, claimed, content):
            judge.replaced(claims)
        else:
            judge.result(claims, content)


def _judge(cfg: config.Config, scope: Scope) -> Judge | SeveralJudges:
    routes = routes_of(cfg)
    if not routes.fans_out:
        return Judge(scope)
    return SeveralJudges(scope, routes)


def _scope(
    cfg: config.Config, asked: Spans, committed: dict[int, Commit], until: Until, partitions: int
) -> Scope:
    ends = {partition: end for partition, (_, end) in asked.items()}
    answered = {
        partition: min(end, committed[partition].next_offset if partition in committed else 0)
        for partition, end in ends.items()
    }
    return scope_of(cfg, asked, ends if until == "end" else answered, committed, partitions)


def scope_of(
    cfg: config.Config,
    asked: Spans,
    until: Mapping[int, int],
    committed: Mapping[int, Commit],
    partitions: int,
) -> Scope:
    """Make the scope of a judge: what the settings promise about the answers. `asked`: the offsets
    of the input that were read. `partitions`: how many partitions the output topic has.
    """
    by_hash = cfg.output.partitioning == "stream"
    return Scope(
        input_topic=cfg.kafka.input_topic,
        output_topic=cfg.output.topic,
        dead_letter_topic=cfg.output.dead_letter_topic,
        spans=asked,
        until=until,
        committed=committed,
        partition_of=_by_stream(partitions) if by_hash else lambda partition, _: partition,
        by_stream=by_hash or cfg.output.order == "stream",
        exactly_once=cfg.delivery.guarantee == "exactly_once",
        markers=cfg.output.markers,
        of_rows=cfg.output.records != "objects",
        of_objects=cfg.output.records != "rows",
        times_of_rows=cfg.rows.time is not None,
        models=frozenset(routes_of(cfg).models),
        naming=StreamNames(cfg.kafka.stream_from),
        times=KeyTimes(cfg.kafka.time_from),
    )


def _by_stream(partitions: int) -> Callable[[int, bytes], int]:
    of_key = hashed(partitions)
    return lambda _, key: of_key(key)
