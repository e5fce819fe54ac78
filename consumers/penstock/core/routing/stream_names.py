"""Which stream does an object belong to?

Rule: to the stream that its reference names; else to the one that `stream_from` finds in its key;
else to the one named by the record's key; else to its folder, and at a bucket's root to its bucket.
Owner: the intake. The rekeyer, `penstock produce` and the judge use the same rule, because they
must find the same streams as the intake.
"""

import re

from penstock.messages.codec import Inline, References
from penstock.messages.reference import MAX_NAME_CHARS, Reference


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
        found = self._pattern.search(reference.key) if self._pattern else None
        if found and (named := found.group("stream")):
            return named
        if key:
            return key
        return folder_of(reference.key) or reference.bucket


def folder_of(key: str) -> str:
    """The object key's folder without the slash at its end; empty at the bucket's root."""
    return key.rpartition("/")[0].rstrip("/")


def key_text(key: bytes | None) -> str:
    """A record's key as a name. A key that is too long to stand in every output
    record becomes "".
    """
    return key.decode("utf-8", "replace") if key and len(key) <= MAX_NAME_CHARS else ""


def fallback(key: bytes | None, partition: int) -> str:
    """The stream of a record that names no object."""
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
