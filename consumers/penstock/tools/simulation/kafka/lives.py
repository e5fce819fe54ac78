"""The lives of one worker: for each partition that it has, the life of the present assignment.

Rule: a partition has one life at a time. A life that is over or suspended may neither publish nor
commit; the checks of each life look at this. Owner: the source; each worker has one.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Generic, TypeVar

from penstock.ports import Commit
from penstock.tools.simulation.checks.history import History
from penstock.tools.simulation.kafka.group import Group


class Watched:
    """A life: from one assignment of a partition to its end. This base class checks nothing."""

    over = False
    suspended = False

    def committing(self, commit: Commit) -> None:
        return

    def committed(self, commit: Commit) -> None:
        return


W = TypeVar("W", bound=Watched)


class Lives(Generic[W]):
    """`watch`: a function that makes the checks of a life from its name, its partition, and the
    start that the worker may use.
    """

    def __init__(
        self, worker: str, group: Group, watch: Callable[[str, int, Commit], W], history: History
    ) -> None:
        self._worker = worker
        self._group = group
        self._watch = watch
        self._history = history
        self._lives: dict[int, W] = {}

    def of(self, partition: int) -> W:
        """The life for which the worker publishes in this partition. Having none breaks a
        promise.
        """
        life = self._lives.get(partition)
        if life is None:
            raise self._history.broken(
                f"{self._worker} publishes on partition {partition}, which is not its own"
            )
        return life

    def begin(self, generation: int, starts: Mapping[int, Commit]) -> None:
        for number, start in starts.items():
            name = f"{self._worker} generation {generation}"
            self._history.note("life", f"{name} {number} {start}")
            if start.metadata:
                self._history.counts["resumed inside a record"] += 1
            self._end(number)
            self._lives[number] = self._watch(name, number, self._group.worth(number, start))

    def suspend(self) -> None:
        for life in self._lives.values():
            life.suspended = True

    def go_on(self, partitions: Iterable[int]) -> None:
        """Go on with the suspended lives of these partitions, which came back at the same
        positions.
        """
        for number in partitions:
            self._lives[number].suspended = False

    def committing(self, commits: Mapping[int, Commit]) -> None:
        """A commit is leaving the worker."""
        for number, commit in commits.items():
            self._lives[number].committing(commit)
            self._lives[number].committed(commit)

    def end(self, partitions: Collection[int] | None = None) -> None:
        """End the lives of these partitions; without `partitions`, end all lives."""
        for number in list(self._lives) if partitions is None else partitions:
            self._end(number)

    def _end(self, number: int) -> None:
        if life := self._lives.pop(number, None):
            life.over = True
