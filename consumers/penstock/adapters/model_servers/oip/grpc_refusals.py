"""What the statuses of gRPC mean, as servers of the Open Inference Protocol use them.

Rule: the library says UNAVAILABLE if it cannot reach the server, and servers say UNAVAILABLE if
they are too busy; the text tells which of the two it is. Only a status that the server sent can
refuse rows: if a stream ends without a status of the server, the server hung up, whatever code the
library gives. Pure functions; owner: the gRPC wire.
"""

import re
from typing import Final

import grpc

from penstock.adapters.http.certificates import untrusted
from penstock.adapters.model_servers.oip.rest_bodies import LOADING, raised
from penstock.adapters.model_servers.refusals import clean, denied, not_there
from penstock.errors import (
    HungUp,
    NoAnswer,
    Overloaded,
    PenstockError,
    Poison,
    Rejected,
    Transient,
    Unreachable,
    usage,
)

_CODE: Final = grpc.StatusCode
# Texts of the library for a connection that failed, or broke.
_NO_CONNECTION: Final = re.compile(
    r"failed to connect|connection refused|name resolution|dns|handshake failed", re.IGNORECASE
)
_BROKEN: Final = re.compile(
    r"socket closed|reset by peer|goaway|broken pipe|eof|recvmsg", re.IGNORECASE
)
# Texts of the library for a stream that ended before the server's status.
_NO_STATUS: Final = re.compile(
    r"stream removed|rst_stream|received http2 header|compression bit|trailers", re.IGNORECASE
)
# Codes that a server can send, and that the library also gives by itself.
_ALSO_BY_LIBRARY: Final = (_CODE.INTERNAL, _CODE.UNKNOWN, _CODE.CANCELLED)
# Texts for a message that is too large: of C core and Go, of Java, of .NET, of Rust, in this order.
_TOO_LARGE: Final = re.compile(
    r"larger than max|exceeds (?:the )?(?:configured )?max|too large|message size", re.IGNORECASE
)
# The server, or a gateway before it, refused the token.
DENIED: Final = (_CODE.UNAUTHENTICATED, _CODE.PERMISSION_DENIED)
_BY_MODEL: Final = (
    # INTERNAL: an exception of the model in Triton and MLServer, an uncaught one in KServe.
    _CODE.INTERNAL,
    _CODE.UNKNOWN,
    _CODE.INVALID_ARGUMENT,
    _CODE.OUT_OF_RANGE,
    _CODE.FAILED_PRECONDITION,
)


def refusal(code: grpc.StatusCode, said: str, where: str) -> PenstockError:
    message = f"{where}: {code.name}: {clean(raised(said))}"
    if untrusting := untrusted(said, "model.ssl_cafile"):
        return usage(f"{where}: {untrusting}")
    if code in _ALSO_BY_LIBRARY and (not said.strip() or _NO_STATUS.search(said)):
        # The library's own code, or no text: the server has said nothing about the rows.
        return HungUp(message)
    if code is _CODE.UNAVAILABLE:
        if _NO_CONNECTION.search(said):
            return Unreachable(f"{message}; check model.url and that the model server runs")
        return HungUp(message) if _BROKEN.search(said) else Overloaded(message)
    if code is _CODE.DEADLINE_EXCEEDED:
        return NoAnswer(f"{message} (model.timeout_ms)")
    if code is _CODE.RESOURCE_EXHAUSTED:
        is_size = _TOO_LARGE.search(said)
        return Poison("too_large", message) if is_size else Overloaded(message)
    if code in DENIED:
        return denied(message)
    if code in (_CODE.NOT_FOUND, _CODE.UNIMPLEMENTED):
        return Transient(message) if LOADING in said else not_there(message)
    return Rejected("model_rejected", message) if code in _BY_MODEL else Transient(message)
