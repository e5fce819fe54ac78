"""The boundaries of the pipeline: what each adapter promises.

Rule: stages know the ports and no client library; adapters know the ports and no stage. Each port
has one contract suite in `tests/adapters/`, and all its adapters pass that suite. Only cancellation
and the errors of `penstock.errors` cross a port.
"""

from penstock.core.progress.cursor import Commit
from penstock.core.rows.origin import Record, Where
from penstock.ports.adapters import (
    Adapters,
    Answers,
    Attribute,
    Clock,
    Guest,
    Model,
    Span,
    SpanIdentity,
    Spans,
    Tokens,
    Transactions,
    outgoing_traceparent,
)
from penstock.ports.objects import (
    PROBE,
    PROBE_KEY,
    Listed,
    Location,
    ObjectBody,
    Objects,
    Part,
    ResultStore,
    Stored,
    Upload,
)
from penstock.ports.sink import (
    HEADERS_BYTES,
    Headers,
    Outgoing,
    Passage,
    Producers,
    Sink,
    header_bytes,
)
from penstock.ports.source import (
    UNDECIDED,
    Followed,
    InputSource,
    Neighbours,
    Rebalance,
)

__all__ = [
    "HEADERS_BYTES",
    "PROBE",
    "PROBE_KEY",
    "UNDECIDED",
    "Adapters",
    "Answers",
    "Attribute",
    "Clock",
    "Commit",
    "Followed",
    "Guest",
    "Headers",
    "InputSource",
    "Listed",
    "Location",
    "Model",
    "Neighbours",
    "ObjectBody",
    "Objects",
    "Outgoing",
    "Part",
    "Passage",
    "Producers",
    "Rebalance",
    "Record",
    "ResultStore",
    "Sink",
    "Span",
    "SpanIdentity",
    "Spans",
    "Stored",
    "Tokens",
    "Transactions",
    "Upload",
    "Where",
    "header_bytes",
    "outgoing_traceparent",
]
