"""Says what a value is that is no message, and how its sender is mended.

Rule: only a value that could not be decoded is looked at, so a message costs nothing here. What is
not recognised keeps the words of the JSON decoder. Owner: the codec.
"""

import re
from typing import Final

# The magic byte of Confluent's serializers, and the schema's number, which has four bytes.
_MAGIC_BYTES: Final = 5
# A lone surrogate, as JavaScript's and Java's encoders write names that are no Unicode.
_HALF_PAIR: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_PLAIN: Final = "write it plain, and let Kafka compress (compression.type)"
# What begins like this, and what to do about it.
_BEGINNINGS: Final = {
    b"\xef\xbb\xbf": "begins with a byte order mark; write UTF-8 without one",
    b"\xff\xfe": "is UTF-16; write UTF-8",
    b"\xfe\xff": "is UTF-16; write UTF-8",
    b"\x1f\x8b": f"is gzip; {_PLAIN}",
    b"\x28\xb5\x2f\xfd": f"is zstd; {_PLAIN}",
    b"\x04\x22\x4d\x18": f"is lz4; {_PLAIN}",
    b"\xff\x06\x00\x00sNaPpY": f"is snappy; {_PLAIN}",
    b"\x82SNAPPY": f"is snappy; {_PLAIN}",
    b"Obj\x01": "is a file of Avro; put it into the store, and send a reference to it",
    b"PAR1": "is a file of Parquet; put it into the store, and send a reference to it",
    b"\xac\xed\x00\x05": "is an object of Java's serialization; write JSON",
    b"<": "is XML or HTML; write JSON",
}


def said_of(value: bytes) -> str | None:
    """The end of a sentence about the value; None: nothing is recognised."""
    if not value.strip():
        return "is empty; a message is a JSON object"
    for beginning, said in _BEGINNINGS.items():
        if value.startswith(beginning):
            return said
    if value[:1] == b"\0" and len(value) > _MAGIC_BYTES and value[1:2] == b"\0":
        number = int.from_bytes(value[1:_MAGIC_BYTES])
        return (
            f"begins with the magic byte of a schema registry (schema {number}): it is Avro, "
            "Protobuf or JSON Schema; write plain JSON, with a serializer of strings or bytes"
        )
    if value[1:2] == b"\0" or value[:1] == b"\0":
        return "is UTF-16 without a byte order mark, or binary; write JSON in UTF-8"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "is not UTF-8: Avro, Protobuf, or text in another charset; write JSON in UTF-8"
    if text.lstrip().startswith('"'):
        return "is a JSON text with something in it: it was encoded twice; write the object itself"
    if "://" in text[:20] and not text.lstrip().startswith(("{", "[")):
        return 'is a URL by itself; write {"url": "..."}'
    if half := _HALF_PAIR.search(text):
        return f"has half of a surrogate pair ({half[0]}), which no text has; send names in UTF-8"
    return None
