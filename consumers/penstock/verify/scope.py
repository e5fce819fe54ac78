"""What a judge judges: which topics and offsets, and the promises of the settings.

Rule: values only. Owner: the caller of the judge.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.core.routing.stream_keys import StreamNames
from penstock.ports import Commit
from penstock.verify.fields import AskedFields


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """`spans`: from an input partition to the offsets that were read. `until`: from an input
    partition to the offset before which every object must be complete. `committed`: from an input
    partition to the group's commit, if there is one.
    """

    input_topic: str
    output_topic: str
    dead_letter_topic: str
    spans: Mapping[int, tuple[int, int]]
    until: Mapping[int, int]
    committed: Mapping[int, Commit]
    partition_of: Callable[[int, str], int]
    by_stream: bool
    exactly_once: bool
    markers: bool
    # `of_rows`: True if rows have records. `of_objects`: True if objects have records. Both come
    # from `output.records`.
    of_rows: bool = True
    of_objects: bool = False
    # `times_of_rows`: True if rows may have times of their own. `models`: the names of the models
    # that a reference may name.
    times_of_rows: bool = False
    models: frozenset[str] = frozenset()
    naming: StreamNames = field(default_factory=lambda: StreamNames(None))
    # Maps an object's index in its message to its place in the ledger.
    place_of: Callable[[int], int] = int

    def fields(self) -> dict[int, AskedFields]:
        """An empty `AskedFields` for each input partition."""
        return {
            partition: AskedFields(times_of_rows=self.times_of_rows, models=self.models)
            for partition in self.spans
        }
