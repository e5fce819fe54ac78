"""The one error of this package, and the decoders that raise it."""

from collections.abc import Callable
from typing import Any

import msgspec


class SchemaError(ValueError):
    """A value has none of the shapes it may have; the text says what is wrong and what was
    expected.
    """


def decoder_of(kind: Any, what: str) -> Callable[[bytes], Any]:
    """A function that decodes values of this type, or raises `SchemaError` with the text "not
    `what`".
    """
    decode = msgspec.json.Decoder(kind).decode

    def checked(value: bytes) -> Any:
        try:
            return decode(value)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise SchemaError(f"not {what}: {error}") from None

    return checked
