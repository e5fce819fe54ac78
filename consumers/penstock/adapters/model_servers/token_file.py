"""The token of a model server: `model.token`, or what `model.token_file` holds now.

Rule: the file holds the token alone, or is TorchServe's own `key_file.json`. A file that cannot be
read is a wrong setting. Owner: the calls of one model. They have the file read again when the
server refuses the token.
"""

import asyncio
from pathlib import Path

import orjson

from penstock import config
from penstock.errors import usage


class Token:
    """`model.token`, or the content of `model.token_file`."""

    def __init__(self, settings: config.Model) -> None:
        self._file = Path(settings.token_file) if settings.token_file else None
        self.text = read_token(self._file) if self._file else settings.token

    async def read_again(self) -> bool:
        """Read the file again, because tokens in files are replaced while we run: TorchServe and
        Kubernetes replace theirs every hour. Returns False if no file is configured, otherwise
        True. Raises `Fatal` if the file cannot be read.
        """
        if self._file is None:
            return False
        self.text = await asyncio.to_thread(read_token, self._file)
        return True


def read_token(path: Path, api: str = "inference") -> str:
    """The file's text, or the key of one API in TorchServe's own `key_file.json`."""
    try:
        text = path.read_text().strip()
        return str(orjson.loads(text)[api]["key"]) if text.startswith("{") else text
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise usage(
            f"model.token_file {path}: {error!r}; it holds the token or is TorchServe's key file"
        ) from None
