"""Reads `model.token_file`: at the start, and again when a model server refuses the token.

Rule: the file holds the token alone, or is TorchServe's own `key_file.json`. A file that cannot be
read is a wrong setting. Owner: the caller, which keeps the token.
"""

from pathlib import Path

import orjson

from penstock.errors import usage


def read_token(path: Path) -> str:
    """The file's text, or the inference key of TorchServe's own `key_file.json`."""
    try:
        text = path.read_text().strip()
        return str(orjson.loads(text)["inference"]["key"]) if text.startswith("{") else text
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise usage(
            f"model.token_file {path}: {error!r}; it holds the token or is TorchServe's key file"
        ) from None
