"""The judge for topics that are still being written: every record is judged once, when it comes.

Rule: no I/O. A reference must be fed before its answers. The latest answers are kept, so that a
repeated answer can be compared with the first one at once, without a second reading. However long
the demo runs, memory holds only the judge and `KEPT` records a partition. Owner: the demo.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

from penstock.tools.verify.findings import Report
from penstock.tools.verify.judge import Judge
from penstock.tools.verify.records_and_open_objects import id_of
from penstock.tools.verify.scope_and_input_topic import Scope

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

    def report(self) -> Report:
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
            for one in self._values:
                self._by_id.setdefault(id_of(one), one)
        first = self._by_id.get(id_of(value))
        return () if first is None else (first, value)
