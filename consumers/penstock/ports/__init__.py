"""The boundaries of the pipeline: what each adapter promises.

Rule: stages know the ports and no client library; adapters know the ports and no stage. Every
adapter of a port passes the port's one contract suite in `tests/adapters/`. Besides cancellation,
only errors of `penstock.errors` cross a port.
"""

from penstock.ports.adapters import Adapters, Guest, Transactions
from penstock.ports.clock import Clock
from penstock.ports.model import Answers, Model
from penstock.ports.objects import Body, Listed, Location, Objects, Part, WholeBody
from penstock.ports.results import Results, Stored, Upload
from penstock.ports.sink import Headers, Outgoing, Passage, Producers, Sink
from penstock.ports.source import (
    UNDECIDED,
    Commit,
    Followed,
    Neighbours,
    Rebalance,
    Record,
    Source,
    Where,
)
from penstock.ports.spans import Attribute, Span, SpanIdentity, Spans, outgoing_traceparent

__all__ = [
    "UNDECIDED",
    "Adapters",
    "Answers",
    "Attribute",
    "Body",
    "Clock",
    "Commit",
    "Followed",
    "Guest",
    "Headers",
    "Listed",
    "Location",
    "Model",
    "Neighbours",
    "Objects",
    "Outgoing",
    "Part",
    "Passage",
    "Producers",
    "Rebalance",
    "Record",
    "Results",
    "Sink",
    "Source",
    "Span",
    "SpanIdentity",
    "Spans",
    "Stored",
    "Transactions",
    "Upload",
    "Where",
    "WholeBody",
    "outgoing_traceparent",
]
