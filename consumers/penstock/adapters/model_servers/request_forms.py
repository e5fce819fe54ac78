"""Turns a batch into a request to a model: one body, with its headers.

Rule: rows are joined in bulk, never touched one by one. Each form declares the form of rows that it
takes, which the start compares with the objects' format. A new form is a line in `_OURS`, or an
entry point `penstock.requests`.
"""

import re
from binascii import b2a_base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa

from penstock.core.rows.payload import BytesRows, Columns, Form, JsonRows, Matrix, Payload
from penstock.errors import Poison, usage
from penstock.packages import plugins

GROUP: Final = "penstock.requests"
# `_FIELD`: the form of a header that may be sent. `_FRAMING`: the headers that only the connection
# may set, because they say where a body ends and which server is asked.
_FIELD: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t -~]*")
_FRAMING: Final = re.compile(
    r"content-length|transfer-encoding|connection|host|authorization", re.IGNORECASE
)


class Body(NamedTuple):
    """The bytes to post, with the headers that describe them."""

    data: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RequestForm:
    """A form of request. `takes`: the form of the rows that it can encode. `encode`: a function
    that makes the body from payloads of one shape; it gets no payload if the request only asks
    whether the server is up. `single`: True if each call has only one row, so that the whole answer
    belongs to this row.
    """

    name: str
    takes: Form
    encode: Callable[[Sequence[Payload]], Body]
    single: bool = False


@cache
def known() -> Mapping[str, RequestForm]:
    """A mapping from a name to its form of request: first our own forms, then those of users'
    packages.
    """
    forms = {request.name: request for request in _OURS}
    for request in plugins(GROUP, RequestForm):
        if request.name in forms:
            raise usage(f"two requests are named {request.name!r}; rename the entry point's")
        forms[request.name] = replace(request, encode=_checked(request))
    return forms


def _checked(request: RequestForm) -> Callable[[Sequence[Payload]], Body]:
    """A function that calls the user's `encode`, and checks the body that it returns. If the user's
    code raises, the rows of the batch fail (`failures/unexpected_errors.py`).
    """

    def encode(payloads: Sequence[Payload]) -> Body:
        given: Any = request.encode(payloads)
        if not isinstance(given, Body) or not isinstance(given.data, bytes):
            kind = type(given.data if isinstance(given, Body) else given).__name__
            raise _wrong(request.name, f"{kind}; it must be a Body of bytes and headers")
        for name, value in given.headers.items():
            if _FRAMING.fullmatch(name) or not _FIELD.fullmatch(f"{name}: {value}"):
                raise _wrong(request.name, f"the header {name!r}: {value!r}, which cannot be sent")
        return given

    return encode


def _wrong(name: str, what: str) -> Poison:
    return Poison("model_mismatch", f"model.request = {name!r} gave {what}; mend its package")


def find(name: str) -> RequestForm:
    """The form of request with this name. Raises `Fatal` if there is none."""
    request = known().get(name)
    if request is None:
        raise usage(f"model.request = {name!r} is unknown; choose one of {', '.join(known())}")
    return request


_JSON: Final = {"Content-Type": "application/json"}
JSON_LINES: Final = "application/jsonlines"
_ON_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")
OPAQUE: Final = "application/octet-stream"
# Pairs of the first bytes of a body and the content type to send with such a body. Some servers
# check the type.
_TYPES: Final = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF8", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)
_RIFF: Final = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
# By the first brand of an ISO media file.
_BRANDS: Final = {
    **dict.fromkeys((b"heic", b"heix"), "image/heic"),
    b"mif1": "image/heif",
    b"avif": "image/avif",
}


def _json(document: bytes, payloads: Sequence[Payload]) -> Body:
    rows = b",".join([payload.body for payload in cast("Sequence[JsonRows]", payloads)])
    return Body(document % rows, _JSON)


def _ndjson(payloads: Sequence[Payload]) -> Body:
    lines = [_lines(payload) for payload in cast("Sequence[JsonRows]", payloads)]
    return Body(b"\n".join(lines), {"Content-Type": JSON_LINES})


def _lines(payload: JsonRows) -> bytes:
    """Write each row as it came, on a line of its own. A line feed inside a row becomes a space. It
    can only stand between two JSON tokens, where a space means the same.
    """
    lines = bytearray(bytes(payload.body).translate(_ON_ONE_LINE))
    np.frombuffer(lines, np.uint8)[payload.ends[:-1]] = ord("\n")
    return bytes(lines)


def _float32(payloads: Sequence[Payload]) -> Body:
    matrices = [payload.values.data for payload in cast("Sequence[Matrix]", payloads)]
    return Body(b"".join(matrices), {"Content-Type": OPAQUE, "X-Rows": str(_rows(payloads))})


def _bytes(payloads: Sequence[Payload]) -> Body:
    bodies = [payload.body for payload in cast("Sequence[BytesRows]", payloads)]
    headers = {"Content-Type": "application/x-bytes-tensor", "X-Rows": str(_rows(payloads))}
    return Body(b"".join(bodies), headers)


def base64_texts(payloads: Sequence[Payload]) -> Iterator[bytes]:
    """Opaque rows as JSON texts."""
    for payload in cast("Sequence[BytesRows]", payloads):
        for number in range(payload.rows):
            yield b'"%b"' % b2a_base64(payload.row(number), newline=False)


def _b64(payloads: Sequence[Payload]) -> Body:
    """The elements of TF Serving, of KServe's first version and of Vertex AI."""
    rows = [b'{"b64":%b}' % text for text in base64_texts(payloads)]
    return Body(b'{"instances":[%b]}' % b",".join(rows), _JSON)


def _raw(payloads: Sequence[Payload]) -> Body:
    if not payloads:
        return Body(b"", {"Content-Type": OPAQUE})
    (payload,) = cast("Sequence[BytesRows]", payloads)
    body = bytes(payload.row(0))
    return Body(body, {"Content-Type": media_type(body)})


def media_type(body: bytes) -> str:
    """The type of a picture or sound, by its first bytes; of other bytes, that of opaque ones."""
    if body.startswith(b"RIFF"):
        return _RIFF.get(body[8:12], OPAQUE)
    if body[4:8] == b"ftyp":
        return _BRANDS.get(body[8:12], OPAQUE)
    return next((name for magic, name in _TYPES if body.startswith(magic)), OPAQUE)


def _arrow(payloads: Sequence[Payload]) -> Body:
    """Write an Arrow stream. The columns of a matrix have no names, so they are named by their
    position.
    """
    batches = [_batch(payload) for payload in payloads]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema if batches else pa.schema([])) as stream:
        for batch in batches:
            stream.write_batch(batch)
    headers = {
        "Content-Type": "application/vnd.apache.arrow.stream",
        "X-Rows": str(_rows(payloads)),
    }
    return Body(sink.getvalue().to_pybytes(), headers)


def _batch(payload: Payload) -> pa.RecordBatch:
    if isinstance(payload, Columns):
        return payload.batch
    values = cast("Matrix", payload).values
    columns = [pa.array(np.ascontiguousarray(column)) for column in values.T]
    return pa.record_batch(columns, names=[str(index) for index in range(len(columns))])


def _rows(payloads: Sequence[Payload]) -> int:
    return sum(payload.rows for payload in payloads)


_OURS: Final = (
    RequestForm("json", "json", partial(_json, b"[%b]")),
    RequestForm("instances", "json", partial(_json, b'{"instances":[%b]}')),
    RequestForm("inputs", "json", partial(_json, b'{"inputs":[%b]}')),
    RequestForm("ndjson", "json", _ndjson),
    RequestForm("float32", "matrix", _float32),
    RequestForm("bytes", "bytes", _bytes),
    RequestForm("b64", "bytes", _b64),
    RequestForm("raw", "bytes", _raw, single=True),
    RequestForm("arrow", "columns", _arrow),
)
