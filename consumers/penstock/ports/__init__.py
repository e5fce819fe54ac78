"""The boundaries of the pipeline, as promises an adapter keeps.

Rule: stages know these and no client library; adapters know these and no stage. Every adapter of a
port passes the one contract suite in `tests/adapters/`. Only errors of `penstock.errors` cross a
port, besides cancellation.
"""

from penstock.ports.adapters import Adapters, Guest, Transactions
from penstock.ports.clock import Clock
from penstock.ports.model import Answers, Model
from penstock.ports.objects import Body, Listed, Location, Objects, Part, WholeBody
from penstock.ports.results import Results, Stored, Upload
from penstock.ports.sink import Outgoing, Outlet, Outlets, Sink
from penstock.ports.source import Commit, Neighbours, Rebalance, Record, Source, Where

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
