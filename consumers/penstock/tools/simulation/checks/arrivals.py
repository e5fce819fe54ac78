"""For each record that reaches a topic, finds the life that published it, and has it checked twice:
by that life, and by the outcome, which knows nothing of lives.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import orjson

from penstock.adapters.memory import MemoryResults
from penstock.ports import Outgoing, Where
from penstock.tools.simulation.checks.history import History
from penstock.tools.simulation.checks.life import Life, Reached
from penstock.tools.simulation.checks.truth import Letter, Number, PartitionLog, Truths
from penstock.tools.simulation.deployments import Deployment
from penstock.tools.simulation.kafka.producers import Landing
from penstock.tools.simulation.kafka.source import SimulatedSource
from penstock.tools.simulation.kafka.topics import Accepted
from penstock.tools.simulation.result_objects import as_rows
from penstock.tools.simulation.scenario import INPUT, OUTPUT

Object = tuple[Where, int, int]


class ArrivedAnswers:
    """Call `add` with the records that reach the topic. At the end, `missing` gives the objects
    that are not answered. `repeated`: how many rows came again. `repeated_once`: how many rows came
    again although they came in transactions.
    """

    def __init__(self, logs: Mapping[Where, PartitionLog]) -> None:
        self.rows = 0
        self.repeated = 0
        self.repeated_once = 0
        self._logs = logs
        self._rows: dict[tuple[Object, str | None], set[int]] = defaultdict(set)
        self._once: dict[tuple[Object, str | None, Truths], set[int]] = defaultdict(set)
        self._readers: dict[Object, Truths] = {}
        self._ended: dict[Object, dict[tuple[str | None, Truths], bool]] = defaultdict(dict)
        self._first: dict[tuple[Object, str | None], Object] = {}

    def add(
        self, records: Sequence[Mapping[str, Any]], truths: Truths, *, once: bool = False
    ) -> None:
        """Add records. `truths`: how the worker that wrote them reads objects. `once`: True if the
        records come from a transaction.
        """
        for record in records:
            source, about, row = record["source"], record["object"], record["row"]
            where = self._object(_where(source), source["offset"], record["id"], record)
            version = about["version"] if about else None
            if row is not None:
                seen = self._rows[where, version]
                self.rows += 1
                self.repeated += row in seen
                seen.add(row)
            if row is not None:
                self._is_read_by(where, truths)
            if row is not None and once:
                committed = self._once[where, version, truths]
                self.repeated_once += row in committed
                committed.add(row)
            if record.get("last"):
                self._ended[where][version, truths] = row is None and "error" in record
            if "duplicate_of" in record:
                name = record["duplicate_of"]
                topic, partition, offset, _, _ = name.rsplit("/", 4)
                at = Where(topic, int(partition))
                first = self._object(at, int(offset), name, record)
                self._first[where, version] = first

    def _object(self, at: Where, offset: int, id: str, record: Mapping[str, Any]) -> Object:
        number = self._logs[at].answered(offset, id, record["model"])
        return at, offset, -1 if number is None else number

    def _is_read_by(self, where: Object, truths: Truths) -> None:
        """If a worker with other row options reads an object, the cursor is made for these options
        from then on. If workers with the former options come back, they cannot use that cursor, so
        they answer the object again from its first row.
        """
        if self._readers.setdefault(where, truths) is not truths:
            self._readers[where] = truths
            for key in [key for key in self._once if key[0] == where]:
                del self._once[key]

    def again(self, at: Where) -> None:
        """From now on the rows of this partition may come once more, even in transactions."""
        self._once = defaultdict(
            set, {key: rows for key, rows in self._once.items() if key[0][0] != at}
        )

    def missing(self) -> Iterator[str]:
        """The objects that were asked for but are not answered to their end."""
        for at, log in self._logs.items():
            for index, record in enumerate(log.records):
                for number in range(len(log.objects(index))):
                    where = (at, record.offset, number)
                    if (index, number) not in log.silent and not any(
                        failed or self._is_whole(log, (index, number), where, *read)
                        for read, failed in self._ended[where].items()
                    ):
                        yield "/".join(map(str, where))

    def _is_whole(
        self, log: PartitionLog, number: Number, where: Object, version: str | None, truths: Truths
    ) -> bool:
        truth = truths.of(log.asked(number), log.records[number[0]], version)
        if truth is None:
            return False
        places = {where, self._first.get((where, version), where)}
        return any(self._rows[place, version] >= set(truth.numbers) for place in places)


def _where(source: Mapping[str, Any]) -> Where:
    return Where(source["topic"], source["partition"])


def letters(record: Mapping[str, Any]) -> Iterator[Letter]:
    """Splits one dead letter into a `Letter` for the rest of its object and a `Letter` for each of
    its rows.
    """
    offset, key, code = (
        record["source"]["offset"],
        (record["object"] or {}).get("key"),
        record["code"],
    )
    model = record["model"]
    yield Letter(offset, key, None, code, model)
    for first, stop in record["rows"] or ():
        if stop is not None:
            yield from (Letter(offset, key, row, code, model) for row in range(first, stop))


@dataclass(eq=False)
class Arrivals:
    """Call `accept` when a worker hands a batch to its producer, and `land` when a transaction is
    committed. `most_bytes`: the largest record that a topic takes.
    """

    logs: Mapping[Where, PartitionLog]
    outcome: ArrivedAnswers
    results: MemoryResults
    history: History
    most_bytes: int | None
    _kept: WeakKeyDictionary[Life, set[tuple[int, str]]] = field(
        default_factory=WeakKeyDictionary, init=False
    )

    def accept(
        self, source: SimulatedSource[Life], deployment: Deployment, outgoing: Outgoing
    ) -> Accepted:
        """Check the sizes of the records now, and their content when they reach the topic. Answers
        are checked by the life that their partition has at the time of this call.
        """
        self._check_sizes(source, outgoing)
        if outgoing.topic != OUTPUT:
            self._check_kept(source.life, outgoing)
            return Accepted(lambda: None, lambda out: lambda: self._letters_delivered(out))
        life = source.life(Where(INPUT, outgoing.partition))

        def append(out: Outgoing) -> Callable[[], None]:
            reached = self._published(life, deployment, out)
            return lambda: life.acknowledged(reached)

        return Accepted(life.sending, append)

    def _check_sizes(self, source: SimulatedSource[Life], outgoing: Outgoing) -> None:
        """No record may be too large for its topic, because the broker would refuse it again after
        every restart.
        """
        largest = max(map(len, outgoing.values))
        if self.most_bytes is not None and largest > self.most_bytes:
            raise self.history.broken(
                f"{source.name} sends a record of {largest} bytes to {outgoing.topic}, which "
                f"takes {self.most_bytes}"
            )

    def _check_kept(self, life_of: Callable[[Where], Life], outgoing: Outgoing) -> None:
        """The bytes of a message may be in only one of the dead letters of a life. If several
        models answer, one letter for each model may have them.
        """
        for value in outgoing.values:
            if b'"value_b64":"' not in value:
                continue
            letter = orjson.loads(value)
            at, model = letter["source"], letter["model"]
            life = life_of(_where(at))
            kept = self._kept.setdefault(life, set())
            if (at["offset"], model) in kept:
                raise self.history.broken(f"{life.name} keeps {at} in several letters")
            kept.add((at["offset"], model))

    def _published(
        self, life: Life, deployment: Deployment, outgoing: Outgoing
    ) -> Sequence[Reached]:
        parsed: list[dict[str, Any]] = [orjson.loads(value) for value in outgoing.values]
        self.history.note("append", f"{life.name} {parsed[0]['id']} +{len(parsed)}")
        of_rows = not deployment.terms.from_first_row
        records = list(as_rows(parsed, self.results, self.history, of_rows=of_rows))
        self._check_models(life, deployment, records)
        reached = life.published(records)
        self.outcome.add(records, deployment.terms.truths, once=deployment.terms.exactly_once)
        return reached

    def _check_models(
        self, life: Life, deployment: Deployment, records: Sequence[Mapping[str, Any]]
    ) -> None:
        """Each stream must be answered by the models that its route names."""
        routes = deployment.settings.routes
        if routes is None:
            return
        self.history.counts["several models"] += 1
        for record in records:
            models = routes.of(record["stream"], None, None)
            self.history.counts["fan-out"] += len(models) > 1
            if record["row"] is not None and record["model"] not in models:
                raise self.history.broken(
                    f"{life.name}: {record['id']} is answered by {record['model']}, not by {models}"
                )

    def land(self, source: SimulatedSource[Life], deployment: Deployment, landing: Landing) -> None:
        """A transaction is committed, so readers now see all its records. No row of them may have
        come before.
        """
        lives = {life.where: life for life, _ in landing.positions}
        for out in landing.outgoing:
            self._check_sizes(source, out)
            if out.topic == OUTPUT:
                life = lives[Where(INPUT, out.partition)]
                life.acknowledged(self._published(life, deployment, out))
            else:
                self._check_kept(lives.__getitem__, out)
                self._letters_delivered(out)
        if self.outcome.repeated_once:
            raise self.history.broken(f"{source.name} publishes again what was published")
        self.history.counts["shared transaction"] += len(lives) > 1
        for life, position in landing.positions:
            life.committed(position)
            self.history.note("transaction", f"{life.name} {life.where} {position}")

    def _letters_delivered(self, outgoing: Outgoing) -> None:
        for value in outgoing.values:
            record = orjson.loads(value)
            self.history.note("letter", record["code"])
            self.logs[_where(record["source"])].letters.update(letters(record))
