"""`penstock verify`: reads the input, output and dead-letter topics, and feeds them to the judge.

Rule: no worker is asked. The committed offsets are asked for before the ends of the output topics.
So the answers to all committed messages are among the records that are read. Owner: the command.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Literal

from penstock import config
from penstock.adapters.kafka.announcer_and_keyed_writer import hashed
from penstock.adapters.kafka.reader import OnRead, Progress, Reader, Spans, open_reader
from penstock.adapters.stores.choice import open_objects, places_of_caller, with_clouds
from penstock.adapters.stores.files_and_stdin import LocalObjects
from penstock.core.routing.store_choice import StoreChoice
from penstock.core.routing.stream_keys import KeyTimes, StreamNames
from penstock.ports import Commit
from penstock.settings.routes import routes_of
from penstock.tools.verify.findings import Report, together
from penstock.tools.verify.judge import Judge
from penstock.tools.verify.records_and_open_objects import each_record
from penstock.tools.verify.result_objects import AT_A_TIME, Claim, look
from penstock.tools.verify.scope_and_input_topic import Scope
from penstock.tools.verify.several_models import SeveralJudges

Until = Literal["end", "committed"]


async def verify(
    cfg: config.Config,
    *,
    committed: bool = False,
    until: Until = "end",
    progress: OnRead = lambda _done, _total: None,
) -> Report:
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
) -> Report:
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
    reading = Progress(progress)
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


async def _follow(
    cfg: config.Config, waiting: list[tuple[Judge, list[Claim]]], reading: Progress
) -> None:
    """Read the result objects that the records name, and judge them. `AT_A_TIME` of them are read
    in parallel.
    """
    if not waiting:
        return
    reading.total += len(waiting)
    known = with_clouds(cfg)
    places = StoreChoice(places_of_caller(known))
    async with (
        aclosing(LocalObjects(partial(open_objects, known, lazily=True))) as objects,
        asyncio.TaskGroup() as tasks,
    ):

        async def follow_some() -> None:
            while waiting:
                judge, claims = waiting.pop()
                url = claims[-1].result.url
                judge.result(claims, await look(objects, places, url))
                reading.passed(1)

        for _ in range(min(AT_A_TIME, len(waiting))):
            tasks.create_task(follow_some())


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
