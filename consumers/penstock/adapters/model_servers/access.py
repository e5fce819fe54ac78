"""Who we are to a model server: its address, our token, and what a request says of both.

Rule: a token in a file is read again when the server refuses it. No text that people see has one of
our secrets in it.
"""

import asyncio
import base64
import re
from functools import lru_cache
from pathlib import Path
from typing import Final

import orjson
from yarl import URL

from penstock import config
from penstock.errors import usage

# The most entries in the cache of request heads. A model has only a few addresses: for predictions,
# for health, for descriptions.
_MOST_ADDRESSES: Final = 16
# Blanks and control characters, which would break the line of a request's head.
_UNSENDABLE: Final = re.compile(r"[\x00-\x20\x7f]")


class ModelToken:
    """`model.token`, or the content of `model.token_file`."""

    def __init__(self, settings: config.Model) -> None:
        self._file = Path(settings.token_file) if settings.token_file else None
        self.text = read_token(self._file) if self._file else settings.token
        self._former: str | None = None

    @property
    def secrets(self) -> set[str]:
        """With the former token: a request that was sent with it may be refused only now."""
        return {text for text in (self.text, self._former) if text}

    async def read_again(self) -> bool:
        """Read the file again, because tokens in files are replaced while we run: TorchServe and
        Kubernetes replace theirs every hour. Returns False if no file is configured, otherwise
        True. Raises `Fatal` if the file cannot be read.
        """
        if self._file is None:
            return False
        text = await asyncio.to_thread(read_token, self._file)
        if text != self.text:
            self.text, self._former = text, self.text
        return True


def read_token(path: Path, api: str = "inference") -> str:
    """The file's text, or the key of one API in TorchServe's own `key_file.json`."""
    try:
        text = config.secret_text(path).strip()
        return str(orjson.loads(text)[api]["key"]) if text.startswith("{") else text
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise usage(
            f"model.token_file {path}: {error!r}; it holds the token or is TorchServe's key file"
        ) from None


class ServerAccess:
    """`base`: `model.url`. `start_of`: the beginning of a request's head, by method and address."""

    def __init__(self, settings: config.Model) -> None:
        self.base = address_of(settings)
        self._token = ModelToken(settings)
        if self.base.user is not None and self._token.text is not None:
            raise usage(
                "model.url has a user in it, and there is a model.token: both are sent as "
                "Authorization; leave one out"
            )
        self._url_secrets = config.url_secrets(settings.url)
        self.start_of = lru_cache(_MOST_ADDRESSES)(self._make_start)

    async def renewed(self) -> bool:
        """True if there is another token to try, perhaps."""
        if not await self._token.read_again():
            return False
        self.start_of.cache_clear()
        return True

    def _make_start(self, method: str, url: URL) -> bytes:
        """The beginning of a request's head, which is the same for all requests to this address."""
        if _UNSENDABLE.search(url.raw_path_qs) or _UNSENDABLE.search(self._token.text or ""):
            raise usage(
                "model.url, model.name or the model's token has a blank or a control character in "
                "it, which a request cannot carry"
            )
        lines = [
            f"{method} {url.raw_path_qs} HTTP/1.1",
            f"Host: {url.host_port_subcomponent}",
            # Without this line a server may pack its answer in any way (RFC 9110, 12.5.3).
            "Accept-Encoding: identity",
        ]
        if self._token.text is not None:
            lines.append(f"Authorization: Bearer {self._token.text}")
        elif url.user is not None:
            name = f"{url.user}:{url.password or ''}".encode()
            lines.append(f"Authorization: Basic {base64.b64encode(name).decode()}")
        return "".join(f"{line}\r\n" for line in lines).encode()

    def masked_text(self, text: str) -> str:
        return self.masked(text.encode()).decode()

    def masked(self, body: bytes) -> bytes:
        """Mask our secrets, because a server may quote the request in an error that we publish."""
        secrets = self._url_secrets | self._token.secrets
        for secret in sorted(secrets, key=len, reverse=True):
            body = body.replace(secret.encode(), config.MASK.encode())
        return body


def address_of(settings: config.Model) -> URL:
    """Returns `model.url`. Its scheme must be http or https, and it must have a host."""
    try:
        base = URL(settings.url)
    except ValueError:
        # The error does not show the URL: only a URL that can be parsed can have its secrets
        # masked.
        message = "model.url cannot be read: check host and port, as in http://host:8080"
        raise usage(message) from None
    if base.scheme not in ("http", "https") or not base.host:
        raise usage(
            f"model.url = {config.shown_url(settings.url)!r} is not an address; "
            "write http://host:8080"
        )
    return base
