"""Searches, trial by trial, how many streams a worker can serve within a latency bound.

Rule: trials are noisy, so a number fails only after two failed trials. Short trials find a
candidate; the result is the largest number that a long trial proves. Every trial is in the report.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from penstock import config
from penstock.adapters.model_servers.protocols import request_of
from penstock.errors import usage
from penstock.tools.bench import object_bodies, tick_generator
from penstock.tools.bench.compared_clients import WARM_UP_REQUESTS, warm_up
from penstock.tools.bench.costly_model import Costs, Law, costly
from penstock.tools.bench.distance import Distance, Far, at_distance
from penstock.tools.bench.object_bodies import BenchObject, read_body
from penstock.tools.bench.resource_use import QUIET_CORES, QUIET_WAIT_S, quiet, service_pids
from penstock.tools.bench.topics_and_bucket import BenchBucket, check_local, fresh_bucket
from penstock.tools.bench.trial import TrialTask, run_trial
from penstock.tools.bench.verdict import Verdict

# If other processes disturb a trial, it is repeated, but at most this often: on a machine that is
# always busy, every trial would be disturbed.
DISTURBED_TRIALS = 3
# After a failed proof the candidate shrinks by this share. A smaller step would be lost in the
# noise between two trials.
STEP_DOWN = 0.05
MAX_PROOFS = 4
# The ticks of one stream come alone. So many seconds of them are a hundred ticks at 20 Hz.
COUNTED_S = 5.0

Holds = Callable[[int], Awaitable[bool]]


class StreamsPlan(Struct, frozen=True, kw_only=True):
    """`streams`: a fixed number of streams to try; None: the largest number up to `max_streams` is
    searched. `costs`, `row_ms`: see `costly_model`; None: the configured model. `beside_rows`:
    beside the streams, huge objects are answered, each with this number of rows; 0: there are no
    huge objects. `body`: a file that every object has as its body; None: an object has `rows` rows
    of numbers.
    """

    hz: float = 20.0
    bound_ms: float = 50.0
    rows: int = 8
    body: Path | None = None
    beside_rows: int = 0
    spread: tick_generator.Spread = "grid"
    streams: int | None = None
    max_streams: int = 100
    distance: Distance = Distance()
    costs: Law | None = None
    row_ms: float = 1.0
    seconds: float = 60.0
    trial_s: float = 12.0
    warm_up_requests: int = WARM_UP_REQUESTS
    quiet_wait_s: float = QUIET_WAIT_S


class StreamsReport(Struct, kw_only=True):
    """`streams` is the result: the largest number that was proven, or 0. `lone_tick`: what the
    worker calls for a tick that comes alone.
    """

    hz: float
    bound_ms: float
    rows: int
    body: str | None = None
    request: str = "float32"
    beside_rows: int
    spread: tick_generator.Spread = "grid"
    distance: Distance = Distance()
    costs: Law | None = None
    streams: int
    proof: Verdict | None
    trials: list[Verdict]
    lone_tick: dict[str, float] = {}


async def measure(
    cfg: config.Config,
    config_path: Path | None,
    plan: StreamsPlan,
    tell: Callable[[str], None],
) -> StreamsReport:
    check_local(cfg)
    body = None if plan.body is None else read_body(cfg, plan.body)
    await warm_up(cfg, plan.warm_up_requests, body.small if body else None, tell)
    costs = None
    if plan.costs is not None:
        if body is not None or plan.beside_rows or plan.distance.model_ms:
            raise usage("--costs: the model knows the streams only by the bench's own small rows")
        most = plan.streams or plan.max_streams
        costs = Costs(plan.costs, plan.row_ms, plan.rows, most)
    async with (
        fresh_bucket(cfg.objects) as bucket,
        at_distance(cfg, plan.distance) as away,
        costly(costs, away) as far,
    ):
        if plan.beside_rows:
            await bucket.put({tick_generator.HUGE_KEY: object_bodies.huge_body(plan.beside_rows)})
        search = _Search(cfg, config_path, plan, body, bucket, tell, far, service_pids(cfg))
        if plan.streams is not None:
            proven = plan.streams if await search.proves(plan.streams) else 0
        else:
            candidate = await bisect(search.holds, plan.max_streams, plan.max_streams // 2)
            proven = await prove(search.proves, candidate)
        lone_tick = (await search.trial(1, COUNTED_S, counts=True)).calls_per_tick
    return StreamsReport(
        hz=plan.hz,
        bound_ms=plan.bound_ms,
        rows=body.rows if body else plan.rows,
        body=plan.body.name if plan.body else None,
        request=cfg.model.request if body else request_of(cfg.model),
        beside_rows=plan.beside_rows,
        spread=plan.spread,
        distance=plan.distance,
        costs=plan.costs,
        streams=proven,
        proof=search.trials[-1] if proven else None,
        trials=search.trials,
        lone_tick=lone_tick,
    )


async def bisect(holds: Holds, most: int, first: int) -> int:
    """The largest number of streams up to `most` for which `holds` returns True; 0 if there is
    none. If `holds` is True for a number, it must be True for every smaller number, too.
    """
    low, high, trial = 0, most + 1, min(first, most)
    while high - low > 1:
        if await holds(trial) or await holds(trial):
            low = trial
        else:
            high = trial
        trial = (low + high) // 2
    return low


async def prove(proves: Holds, candidate: int) -> int:
    """A number of streams that is proven: the candidate, or a lower number if the candidate's proof
    fails. 0 if `MAX_PROOFS` proofs have failed.
    """
    for _ in range(MAX_PROOFS):
        if candidate < 1:
            break
        if await proves(candidate):
            return candidate
        candidate -= max(1, round(candidate * STEP_DOWN))
    return 0


@dataclass(eq=False)
class _Search:
    """Runs the trials with one bucket. The objects of a stream are stored when a trial needs them
    for the first time.
    """

    cfg: config.Config
    config_path: Path | None
    plan: StreamsPlan
    body: BenchObject | None
    bucket: BenchBucket
    tell: Callable[[str], None]
    far: Far
    services: Mapping[str, int]
    _stored_streams: int = field(default=0, init=False)
    trials: list[Verdict] = field(default_factory=list, init=False)

    @property
    def _pids(self) -> Mapping[str, int]:
        """Empty if those of the services are not known: the figures of others would then mean
        nothing.
        """
        return {**self.services, **self.far.pids} if self.services else {}

    async def holds(self, streams: int) -> bool:
        return (await self._undisturbed(streams, self.plan.trial_s, lambda trial: trial.held)).held

    async def proves(self, streams: int) -> bool:
        return (
            await self._undisturbed(streams, self.plan.seconds, lambda trial: trial.proven)
        ).proven

    async def _undisturbed(
        self, streams: int, seconds: float, passed: Callable[[Verdict], bool]
    ) -> Verdict:
        """Run a trial. A trial that fails while other processes take CPU proves nothing, and is
        repeated.
        """
        for _ in range(DISTURBED_TRIALS if self.plan.quiet_wait_s else 1):
            await quiet(self._pids, self.plan.quiet_wait_s, self.tell)
            trial = await self.trial(streams, seconds)
            self.trials.append(trial)
            self.tell(_in_words(trial, seconds))
            if passed(trial) or trial.others_cores <= QUIET_CORES:
                break
        return trial

    async def trial(self, streams: int, seconds: float, *, counts: bool = False) -> Verdict:
        plan, body = self.plan, self.body
        if streams > self._stored_streams:
            missing = tick_generator.bodies(plan.rows, self._stored_streams, streams, body)
            await self.bucket.put(missing)
            self._stored_streams = streams
        ticks = tick_generator.Ticks(
            bucket=self.bucket.name,
            rows=body.rows if body else plan.rows,
            streams=streams,
            hz=plan.hz,
            seconds=seconds,
            beside_rows=plan.beside_rows,
            extension=body.extension if body else ".csv",
            spread=plan.spread,
        )
        settings = {} if body else object_bodies.numbers(self.cfg.model)
        task = TrialTask(
            load=ticks,
            bound_ms=plan.bound_ms,
            pids=self._pids,
            settings={**settings, **self.far.settings},
            counts=counts,
        )
        return await run_trial(self.cfg, self.config_path, task)


def _in_words(trial: Verdict, seconds: float) -> str:
    def ms(value: float | None) -> str:
        return "none" if value is None else f"{value:.0f} ms"

    beside = f"; {trial.beside_rows_per_s:,.0f} rows/s beside" if trial.beside_rows_per_s else ""
    verdict = "proven" if trial.proven else "held" if trial.held else "missed"
    return (
        f"{trial.streams:3} streams, {seconds:g} s: {verdict}; p50 {ms(trial.p50_ms)}, "
        f"p99 {ms(trial.p99_ms)}, worst stream {ms(trial.worst_stream_p99_ms)}, "
        f"{trial.streams_within} within the bound, "
        f"{trial.misses} of {trial.ticks} ticks missed{beside}; "
        f"others {trial.others_cores:.2f} cores"
    )
