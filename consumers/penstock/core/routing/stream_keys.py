"""Which stream does an object belong to, when was it captured, and how does a message get its
stream as the key?

Rule: the stream that the reference names; else what `stream_from` finds in its key; else the
record's key; else its folder; at a bucket's root its bucket. Where `kafka.time_from` finds a time
in the key, it is the `event_time`, because a notification tells when the object was uploaded.

Rule of rekeying: a message is passed on unchanged, with its stream as the key; one that names
objects of several streams becomes one for each; one too large for the topic several with fewer
objects each. One that cannot be read is passed on as well.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec import structs

from penstock.messages.cloud_events import Headers, is_part, structured
from penstock.messages.codec import Ignored, Inline, References, SchemaError, decode
from penstock.messages.prediction import printable
from penstock.messages.reference import MAX_NAME_CHARS, Reference
from penstock.messages.times import NoTime, same_time, time_in_name
from penstock.messages.traceparent import HEADER, in_cloud_event, in_headers


class StreamNames:
    """`pattern` is `kafka.stream_from`."""

    def __init__(self, pattern: str | None) -> None:
        self._pattern = re.compile(pattern) if pattern else None

    def of(self, reference: Reference, key: str) -> str:
        """The stream of one reference. `key`: the record's key as text, or "" if it cannot name a
        stream.
        """
        if reference.stream:
            return reference.stream
        match = self._pattern.search(reference.key) if self._pattern else None
        if match and (named := match.group("stream")):
            return named
        if key:
            return key
        return folder_of(reference.key) or reference.bucket


def folder_of(key: str) -> str:
    """The object key's folder without the slash at its end; empty at the bucket's root."""
    return key.rpartition("/")[0].rstrip("/")


def key_text(key: bytes | None) -> str:
    """A record's key as a name: its text, or `0x` and its bytes in hexadecimal digits if it is no
    text (not UTF-8, or with a NUL, as the keys of Java's numbers and of Avro). If the key is too
    long to be repeated in every output record, the name is "".
    """
    if not key or len(key) > MAX_NAME_CHARS:
        return ""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return _in_hex(key)
    return _in_hex(key) if "\0" in text else text


_HEX = "0x"


def _in_hex(key: bytes) -> str:
    name = _HEX + key.hex()
    return name if len(name) <= MAX_NAME_CHARS else ""


def key_of(stream: str, key: bytes | None) -> bytes:
    """The key of a message of this stream: the bytes of the record's own key, if it named the
    stream; else the stream's name.
    """
    if key is not None and stream.startswith(_HEX) and key_text(key) == stream:
        return key
    return stream.encode()


def fallback(key: bytes | None, partition: int) -> str:
    """The stream of a record that names no objects."""
    return key_text(key) or f"partition-{partition}"


def streams_of(
    message: References | Inline, naming: StreamNames, key: bytes | None, partition: int
) -> list[str]:
    """The stream of each object that the message names; inline rows have one stream. `key`: the
    record's key. `partition`: the number of the record's partition in the topic.
    """
    if isinstance(message, Inline):
        return [message.stream or fallback(key, partition)]
    text = "" if message.announced else key_text(key)
    return [naming.of(reference, text) for reference in message.items]


_BEGIN, _END = b'{"objects":[', b"]}"
# Each header also has two lengths, which take at most three bytes each.
_HEADER_BYTES = 6


class KeyedMessage(NamedTuple):
    """A message to write. `key`: that of its stream."""

    key: bytes
    value: bytes | None
    headers: Headers

    @property
    def nbytes(self) -> int:
        return (
            len(self.key)
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
) -> list[KeyedMessage]:
    """The messages to pass on; none for an event that makes no work. None of them has more than
    `most_bytes` with its key and headers, unless a single object is larger than that.
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
        unchanged = KeyedMessage(key_of(streams[0], key), value, headers)
        if isinstance(message, Inline) or unchanged.nbytes <= most_bytes or len(streams) == 1:
            return [unchanged]
    # The message is divided. So each object is written anew, under the key of its own stream.
    objects: dict[bytes, list[bytes]] = {}
    for stream, reference in zip(streams, message.items, strict=True):
        own = key_of(stream, key)
        objects.setdefault(own, []).append(_encoded(reference, stream, own, naming))
    kept = _without_parts(whole, headers)
    return [
        KeyedMessage(own, value, kept)
        for own, named in objects.items()
        for value in _packed(named, most_bytes - KeyedMessage(own, b"", kept).nbytes)
    ]


def _encoded(reference: Reference, stream: str, key: bytes, naming: StreamNames) -> bytes:
    """The reference as JSON. It names its stream only if the worker would find another stream by
    the new key.
    """
    plain = structs.replace(reference, stream=None)
    if naming.of(plain, key_text(key)) == stream:
        return msgspec.json.encode(plain)
    return msgspec.json.encode(structs.replace(reference, stream=stream))


def _packed(objects: Sequence[bytes], most_bytes: int) -> Iterator[bytes]:
    """As few messages as `most_bytes` allows. An object that is larger than that gets its own
    message.
    """
    some: list[bytes] = []
    nbytes = empty = len(_BEGIN) + len(_END)
    for each in objects:
        if some and nbytes + len(each) > most_bytes:
            yield _BEGIN + b",".join(some) + _END
            some, nbytes = [], empty
        some.append(each)
        nbytes += len(each) + 1
    yield _BEGIN + b",".join(some) + _END


def unread(
    key: bytes | None, value: bytes | None, headers: Headers, partition: int
) -> KeyedMessage:
    """The message that cannot be read, keyed by the stream that its answer will have."""
    return KeyedMessage(key_of(fallback(key, partition), key), value, headers)


def _without_parts(whole: bytes | None, headers: Headers) -> Headers:
    """The headers of a message with a new value. Headers that belong to the parts of the old
    message are left out, because they would be read as parts of the new one. Of the other headers
    only the trace stays: one message may become very many, and each of them would carry all
    headers.
    """
    kept = [(name, text) for name, text in headers if name == HEADER and not is_part(name)]
    traced = in_cloud_event(whole) if in_headers(headers) is None else None
    return kept if traced is None else [*kept, (HEADER, traced)]


class KeyTimes:
    """`pattern` is `kafka.time_from`. `on_missed` is called with a text about the first key in
    which it finds no time.
    """

    def __init__(self, pattern: str | None, on_missed: Callable[[str], None] | None = None) -> None:
        self._pattern = re.compile(pattern) if pattern else None
        self._on_missed = on_missed

    def timed(self, reference: Reference) -> Reference:
        """The reference with the time in its key; unchanged if its key has none."""
        if self._pattern is None:
            return reference
        match = self._pattern.search(reference.key)
        if match and (text := match.group("time")):
            with suppress(NoTime):
                return structs.replace(reference, event_time=same_time(time_in_name(text)))
        if self._on_missed is not None:
            self._on_missed(
                f"kafka.time_from finds no time in the key {printable(reference.key)!r}, so the "
                "time of its message counts, if that has one; further such keys are not told"
            )
            self._on_missed = None
        return reference
