"""Calls with less time than those before them.

Rule: a connection is made, and a server is asked what it takes, within the time of the settings,
however busy the machine is. Only the call that is to be given up gets less. Owner: the tests of
calls that take too long.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.adapters.model_servers.http_calls import ModelHttp
from penstock.adapters.model_servers.oip.grpc_calls import GrpcWire


@contextmanager
def in_a_hurry(calls: ModelHttp | GrpcWire, most_s: float) -> Iterator[None]:
    """While the body runs, each call has `most_s`. The connection is there already."""
    before_s, calls._timeout_s = calls._timeout_s, most_s
    try:
        yield
    finally:
        calls._timeout_s = before_s
