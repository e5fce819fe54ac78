"""From a message of an input topic to the messages of the topic that is keyed by stream.

Rule: a message is passed on unchanged, with its stream as the key. A message that names objects of
several streams becomes one message for each stream, because a record has one key. A message that is
too large for the topic becomes several with fewer objects each. A message that cannot be read is
passed on as well, and the worker answers it in its place. No I/O. Owner: the rekeyer.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec import structs

from penstock.core.routing.stream_names import StreamNames, fallback, key_text, streams_of
from penstock.messages.cloud_events import Headers, is_part, structured
from penstock.messages.codec import Ignored, Inline, SchemaError, decode
from penstock.messages.reference import Reference
from penstock.messages.traceparent import HEADER, in_cloud_event, in_headers

_BEGIN, _END = b'{"objects":[', b"]}"
# A header has two lengths of at most three bytes each.
_HEADER_BYTES = 6


class Keyed(NamedTuple):
    """A message to write. `stream`: its key."""

    stream: str
    value: bytes | None
    headers: Headers

    @property
    def nbytes(self) -> int:
        return (
            len(self.stream.encode())
            + len(self.value or b"")
            + sum(
                len(name.encode()) + len(text or b"") + _HEADER_BYTES for name, text in self.headers
            )
        )


def keyed(
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    partition: int,
    naming: StreamNames,
    most_bytes: int,
) -> list[Keyed]:
    """The messages to pass on; none for an event that makes no work. None of them has more than
    `most_bytes` with its key and headers, unless a single object is larger.
    """
    whole = structured(value, headers) if headers else value
    try:
        message = decode(whole)
    except SchemaError:
        return [unread(key, value, headers, partition)]
    if isinstance(message, Ignored):
        return []
    streams = streams_of(message, naming, key, partition)
    if isinstance(message, Inline) or len(set(streams)) == 1:
        unchanged = Keyed(streams[0], value, headers)
        if isinstance(message, Inline) or unchanged.nbytes <= most_bytes or len(streams) == 1:
            return [unchanged]
    # The message is divided, so each object is written anew, under the key of its own stream.
    objects: dict[str, list[bytes]] = {}
    for stream, reference in zip(streams, message.items, strict=True):
        objects.setdefault(stream, []).append(_encoded(reference, stream, naming))
    kept = _without_parts(whole, headers)
    return [
        Keyed(stream, value, kept)
        for stream, named in objects.items()
        for value in _packed(named, most_bytes - Keyed(stream, b"", kept).nbytes)
    ]


def _encoded(reference: Reference, stream: str, naming: StreamNames) -> bytes:
    """The reference as JSON. It names its stream only if the worker would not find the stream by
    the new key.
    """
    plain = structs.replace(reference, stream=None)
    if naming.of(plain, key_text(stream.encode())) == stream:
        return msgspec.json.encode(plain)
    return msgspec.json.encode(structs.replace(reference, stream=stream))


def _packed(objects: Sequence[bytes], most_bytes: int) -> Iterator[bytes]:
    """As few messages as `most_bytes` allows. An object that is larger than that gets its own
    message.
    """
    some: list[bytes] = []
    nbytes = empty = len(_BEGIN) + len(_END)
    for one in objects:
        if some and nbytes + len(one) > most_bytes:
            yield _BEGIN + b",".join(some) + _END
            some, nbytes = [], empty
        some.append(one)
        nbytes += len(one) + 1
    yield _BEGIN + b",".join(some) + _END


def unread(key: bytes | None, value: bytes | None, headers: Headers, partition: int) -> Keyed:
    """A message that names no stream, keyed by the stream that its answer will have."""
    return Keyed(fallback(key, partition), value, headers)


def _without_parts(whole: bytes | None, headers: Headers) -> Headers:
    """The headers of a message with a new value. Headers that were a part of the old message would
    be read as a part of the new one, so they are left out. Of the other headers only the trace
    stays, because very many messages may be made of one, and each would carry all of them.
    """
    kept = [(name, text) for name, text in headers if name == HEADER and not is_part(name)]
    traced = in_cloud_event(whole) if in_headers(headers) is None else None
    return kept if traced is None else [*kept, (HEADER, traced)]
