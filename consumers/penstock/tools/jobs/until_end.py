"""`penstock run --until-end`: a worker that ends when its group has answered all of a job.

Rule: its source gives no records beyond the job's end. It goes on after its own partitions are
done, so that it can take over those of another that dies, until the group has committed all up to
the end.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from penstock import config
from penstock.adapters.inputs.bounded_sources import BoundedSource
from penstock.adapters.kafka.positions_from_outside import Groups, open_groups
from penstock.adapters.kafka.reader import open_reader
from penstock.errors import EXIT_CHECK_FAILED, EXIT_STOPPED, usage
from penstock.failures.outage import until_answered
from penstock.pipeline.life import Pipeline
from penstock.ports import InputSource
from penstock.process.asyncio_additions import SystemClock
from penstock.tools.jobs.progress import AnsweredByErrors, Job, decide, group_of_end
from penstock.tools.replay.pacing import KeptRange, Watch
from penstock.worker.open_worker import Variant
from penstock.worker.run_worker import run_worker

log = logging.getLogger(__name__)


async def run_until_end(
    cfg: config.Config,
    path: Path | None,
    read_again: Callable[[], config.Config],
    *,
    strict: bool,
    leaves: bool = False,
) -> None:
    """Return when all is answered. With `strict`, the process exits with 1 if anything was answered
    by an error. If the worker was asked to end before all was answered, the process exits with 143.
    If the worker fails, its first failure is raised.
    """
    if cfg.helped:
        raise usage(
            f"--until-end: region {cfg.region} helps others (fallback of [regions.{cfg.region}]), "
            "whose topics have no end here; run the job without that"
        )
    if cfg.kafka.rekey is not None:
        raise usage(
            f"--until-end: {cfg.kafka.rekey} (kafka.rekey) has no end while events are passed on "
            "to it; announce the job on a topic of its own, without kafka.rekey"
        )
    async with open_groups(cfg.kafka) as groups:
        work = _Work(cfg, groups)
        start_s = cfg.limits.start_ms / 1000
        await until_answered("Kafka broker", work.decide, work.clock, start_s)
        watch = work.watch
        log.info("until the end: the group has answered %s", watch.look.sentence)
        if not watch.is_done:
            await work.run(path, read_again, leaves=leaves)
            await watch.ask()
    if not watch.is_done:
        log.warning("ended before the end: %s. The same command goes on", watch.look.sentence)
        raise SystemExit(EXIT_STOPPED)
    log.info("at the end: %s are answered", watch.look.sentence)
    if strict:
        await _judge(cfg, work.job)


class _Work:
    """A job, and the worker for it. Call `decide` first, then `run` once."""

    job: Job
    watch: Watch

    def __init__(self, cfg: config.Config, groups: Groups) -> None:
        self.clock = SystemClock()
        self._cfg = cfg
        self._groups = groups

    async def decide(self) -> None:
        kafka = self._cfg.kafka
        async with open_reader(kafka, "read_uncommitted") as reader:
            self.job = await decide(kafka, self._groups, reader, self.clock.wall_ms())
        kept = KeptRange(group_of_end(kafka), self.job.written)
        self.watch = Watch(self.job.spans, self._groups, self.clock, kept, group=kafka.group)
        await self.watch.ask()

    async def run(
        self, path: Path | None, read_again: Callable[[], config.Config], *, leaves: bool
    ) -> None:
        ends = {part: span.end for part, span in self.job.spans.items()}
        sources: list[BoundedSource] = []

        def bounded(source: InputSource) -> InputSource:
            sources.append(BoundedSource(source, ends))
            return sources[0]

        async def until(pipeline: Pipeline) -> None:
            await self.watch.run(pipeline, sources[0])

        variant = Variant(source=bounded, until=until)
        await run_worker(self._cfg, path, read_again, leaves=leaves, variant=variant)


async def _judge(cfg: config.Config, job: Job) -> None:
    errors = AnsweredByErrors(cfg, job)
    async with open_reader(cfg.kafka, cfg.delivery.isolation) as reader:
        await errors.read_on(reader)
    if not errors.references:
        return
    codes = ", ".join(f"{code} {count:,}" for code, count in errors.by_code.most_common())
    log.error(
        "%s of %s references were answered by errors: %s. See penstock dlq list",
        f"{errors.references:,}",
        f"{job.total:,}",
        codes,
    )
    raise SystemExit(EXIT_CHECK_FAILED)
