"""The deployments of a world, one after the other, each with its own settings and promises.

Rule: workers of one read the commits of the former; docs/guarantees.md says what may happen then.
The first is the same whether the world changes later or not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from penstock.core.progress.line_stop import LineLimits
from penstock.formats.runs import RowOptions
from penstock.formats.text.csv_dialect import CsvOptions
from penstock.pipeline.settings import Settings
from penstock.ports import Record
from penstock.stages.result_objects import ResultTerms
from penstock.tools.simulation.checks.life import LifeTerms
from penstock.tools.simulation.checks.truth import Asked, Truths
from penstock.tools.simulation.scenario import Scenario, drawn_settings, with_fan_out


@dataclass(frozen=True, slots=True)
class Troubles:
    """What may go wrong in a world besides delays and failures. Each kind happens in some of the
    seeds.
    """

    settings: bool = False
    objects: bool = False
    partitions: bool = False
    poison: bool = False
    broker: bool = False
    lines: bool = False
    silent: bool = False
    small_records: bool = False
    positions: bool = False


NONE = Troubles()


def drawn_troubles(random: Random) -> Troubles:
    """Half of the worlds have no troubles, and the other half has a mix of them."""
    if random.random() < 0.5:
        return NONE
    return Troubles(*(random.random() < 0.4 for _ in Troubles.__slots__))


@dataclass(frozen=True, slots=True)
class Deployment:
    """The settings and promises of the workers that are hired during this deployment."""

    settings: Settings
    terms: LifeTerms


class Deployments:
    """Workers are hired with the settings of `now`; `change` begins another deployment."""

    def __init__(
        self,
        random: Random,
        scenario: Scenario,
        troubles: Troubles,
        *,
        exactly_once: bool,
        chunk_bytes: int,
        most_bytes: int | None,
        results: ResultTerms | None,
        fans_out: bool,
    ) -> None:
        self._fans_out = fans_out
        self._results = results
        self._random = random
        self._scenario = scenario
        self._troubles = troubles
        self._chunk_bytes = chunk_bytes
        self._most_bytes = most_bytes
        self._all: list[Truths] = []
        self._put: list[tuple[str, str, bytes]] = []
        self._announced: list[tuple[Record, Sequence[Asked]]] = []
        settings = drawn_settings(random, scenario)
        self.now = self._deployment(self._troubled(settings), exactly_once=exactly_once)

    def put(self, name: str, version: str, data: bytes) -> None:
        self._put.append((name, version, data))
        for truths in self._all:
            truths.put(name, version, data)

    def announced(self, record: Record, asked: Sequence[Asked]) -> None:
        self._announced.append((record, asked))
        for truths in self._all:
            truths.announced(record, asked)

    def change(self, partitions: int) -> None:
        """Begin another deployment. It either differs from the last one in everything, or only in
        the row options and in the settings that belong to the world's troubles.
        """
        random, before = self._random, self.now
        drawn = drawn_settings(random, self._scenario)
        if random.random() < 0.5:
            drawn = _with_rows(before.settings, drawn.main.rows)
        settings = replace(self._troubled(drawn), input_partitions=partitions)
        self.now = self._deployment(settings, exactly_once=random.random() < 0.4)

    def mend_lines(self) -> None:
        """The settings of workers that start from now on have no limits that stop a line."""
        settings = _with_line(self.now.settings, LineLimits(0.0, 0))
        self.now = Deployment(settings, self.now.terms)

    def grow(self, partitions: int) -> None:
        """Workers that start from now on know this number of partitions."""
        settings = replace(self.now.settings, input_partitions=partitions)
        self.now = Deployment(settings, self.now.terms)

    def _troubled(self, settings: Settings) -> Settings:
        random, troubles = self._random, self._troubles
        if troubles.settings and self._scenario.rows is None:
            options = replace(
                settings.main.rows,
                own=(CsvOptions(random.choice(("auto", "auto", "yes", "no"))),),
                member=random.choice((None, None, "m[01].csv", "m1.csv")),
                fail_on_bad_row=random.random() < 0.2,
            )
            settings = _with_rows(settings, options)
        if troubles.objects:
            objects = replace(settings.objects, pin=random.random() < 0.5)
            settings = replace(settings, objects=objects)
        if troubles.silent and random.random() < 0.7:
            labels = replace(settings.labels, markers=False)
            settings = replace(settings, labels=labels, dedupe=False)
        if troubles.lines and random.random() < 0.7:
            settings = _with_line(settings, LineLimits(0.0, random.choice((1, 1, 2))))
        return settings

    def _deployment(self, settings: Settings, *, exactly_once: bool) -> Deployment:
        if self._fans_out:
            settings = with_fan_out(settings)
        settings = replace(_with_rows(settings, settings.main.rows), results=self._results)
        terms = LifeTerms(
            self._truths(settings.main.rows),
            by_stream=settings.lane.order_by_stream,
            exactly_once=exactly_once,
            dedupe=settings.dedupe,
            markers=settings.labels.markers,
            from_first_row=self._results is not None and not self._results.of_rows,
        )
        return Deployment(settings, terms)

    def _truths(self, options: RowOptions) -> Truths:
        for truths in self._all:
            if truths.options == options:
                return truths
        made = Truths(options, self._scenario.answer, self._chunk_bytes, self._most_bytes)
        for put in self._put:
            made.put(*put)
        for announced in self._announced:
            made.announced(*announced)
        self._all.append(made)
        return made


def _with_line(settings: Settings, line: LineLimits) -> Settings:
    return replace(settings, lane=replace(settings.lane, line=line))


def _with_rows(settings: Settings, rows: RowOptions) -> Settings:
    """The settings with these row options for all models."""
    models = {name: replace(terms, rows=rows) for name, terms in settings.models.items()}
    return replace(settings, main=replace(settings.main, rows=rows), models=models)
