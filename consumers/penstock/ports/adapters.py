"""The ports of one pipeline, together.

Rule: one implementation of each, chosen where the pipeline is made. Owner: the application.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.ports.clock import Clock
from penstock.ports.model import Model
from penstock.ports.objects import Objects
from penstock.ports.results import Results
from penstock.ports.sink import Producers, Sink
from penstock.ports.source import Neighbours, Source
from penstock.ports.spans import Spans


class Transactions(NamedTuple):
    """What exactly-once takes."""

    producers: Producers
    positions: Source


class Guest(NamedTuple):
    """A shadow model, and a way out of its own: nothing of it is shared with live work."""

    model: Model
    sink: Sink


@dataclass(frozen=True, slots=True)
class Adapters:
    """One implementation of each port. With `transactions` answers leave exactly once; with
    `results` they are written as objects. `models` are those beside the default one, by name;
    `neighbours` the regions that may be helped; `shadow` is asked what the default one was; to
    `spans` go those of sampled objects.
    """

    source: Source
    objects: Objects
    model: Model
    sink: Sink
    clock: Clock
    transactions: Transactions | None = None
    results: Results | None = None
    models: Mapping[str, Model] = field(default_factory=dict)
    neighbours: Neighbours | None = None
    shadow: Guest | None = None
    spans: Spans | None = None
