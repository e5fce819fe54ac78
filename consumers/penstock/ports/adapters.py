"""All adapters of one pipeline.

Rule: there is one adapter for each port, chosen where the pipeline is made. Owner: the application.
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
    """What exactly-once delivery needs: the transactional producers, and the source that knows the
    committed positions.
    """

    producers: Producers
    positions: Source


class Guest(NamedTuple):
    """A shadow model, and a sink of its own, so that it shares nothing with live work."""

    model: Model
    sink: Sink


@dataclass(frozen=True, slots=True)
class Adapters:
    """One adapter for each port. `transactions`: given for exactly-once delivery. `results`: given
    if answers are written as objects. `models`: the models besides the default one, by name.
    `neighbours`: the regions that may be helped. `shadow`: the model that gets copies of the
    default model's requests. `spans`: gets the spans of sampled objects.
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
