"""The boundaries of the pipeline, as promises an adapter keeps.

Rule: stages know these and no client library; adapters know these and no stage. Every adapter of a
port passes the one contract suite in `tests/adapters/`. Only errors of `consumers.errors` cross a
port, besides cancellation.
"""

from consumers.ports.adapters import Adapters, Guest, Transactions
from consumers.ports.clock import Clock
from consumers.ports.model import Answers, Model
from consumers.ports.objects import Body, Listed, Location, Objects, Part, WholeBody
from consumers.ports.results import Results, Stored, Upload
from consumers.ports.sink import Outgoing, Outlet, Outlets, Sink
from consumers.ports.source import Commit, Neighbours, Rebalance, Record, Source, Where

__all__ = [
    "Adapters",
    "Answers",
    "Body",
    "Clock",
    "Commit",
    "Guest",
    "Listed",
    "Location",
    "Model",
    "Neighbours",
    "Objects",
    "Outgoing",
    "Outlet",
    "Outlets",
    "Part",
    "Rebalance",
    "Record",
    "Results",
    "Sink",
    "Source",
    "Stored",
    "Transactions",
    "Upload",
    "Where",
    "WholeBody",
]
