"""Finds out what all workers together have put on the output topic in the end, and what is missing.

Rule: only the records decide, never the state of a worker. Owner: one simulation.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.tools.simulation.checks.partition_log import Letter, Number, PartitionLog
from penstock.tools.simulation.checks.truth import Truths

Object = tuple[int, int, int]


class Outcome:
    """Call `add` with the records that reach the topic. At the end, `missing` gives the objects
    that are not answered. `repeated`: how many rows came again. `repeated_once`: how many rows came
    again although they came in transactions.
    """

    def __init__(self, logs: Sequence[PartitionLog]) -> None:
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
            where = self._where(source["partition"], source["offset"], record["id"], record)
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
                _, partition, offset, _, _ = name.rsplit("/", 4)
                first = self._where(int(partition), int(offset), name, record)
                self._first[where, version] = first

    def _where(self, partition: int, offset: int, id: str, record: Mapping[str, Any]) -> Object:
        number = self._logs[partition].answered(offset, id, record["model"])
        return partition, offset, -1 if number is None else number

    def _is_read_by(self, where: Object, truths: Truths) -> None:
        """If a worker with other row options reads an object, the cursor is made for these options
        from then on. If workers with the former options come back, they cannot use that cursor, so
        they answer the object again from its first row.
        """
        if self._readers.setdefault(where, truths) is not truths:
            self._readers[where] = truths
            for key in [key for key in self._once if key[0] == where]:
                del self._once[key]

    def again(self, partition: int) -> None:
        """From now on the rows of this partition may come once more, even in transactions."""
        self._once = defaultdict(
            set, {key: rows for key, rows in self._once.items() if key[0][0] != partition}
        )

    def missing(self) -> Iterator[str]:
        """The objects that were asked for but are not answered to their end."""
        for partition, log in enumerate(self._logs):
            for index, record in enumerate(log.records):
                for number in range(len(log.objects(index))):
                    where = (partition, record.offset, number)
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


def letters(found: Mapping[str, Any]) -> Iterator[Letter]:
    """Splits one dead letter into a `Letter` for the rest of its object and a `Letter` for each of
    its rows.
    """
    offset, key, code = found["source"]["offset"], (found["object"] or {}).get("key"), found["code"]
    model = found["model"]
    yield Letter(offset, key, None, code, model)
    for first, stop in found["rows"] or ():
        if stop is not None:
            yield from (Letter(offset, key, row, code, model) for row in range(first, stop))
