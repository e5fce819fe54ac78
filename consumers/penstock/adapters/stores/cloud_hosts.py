"""The hosts that a client of Google Cloud Storage or Azure may ask: the store and token services.

Rule: no other host is ever asked, even if a redirect leads there. Token services are allowed only
if no credentials are configured. Owner: the clients of both clouds.
"""

import os
from pathlib import Path
from typing import Final

import msgspec

from penstock import config

_GOOGLE: Final = "https://storage.googleapis.com"
_GOOGLE_TOKENS: Final = (
    "https://oauth2.googleapis.com",
    "https://www.googleapis.com",
    "https://accounts.google.com",
    "https://sts.googleapis.com",
    "https://iamcredentials.googleapis.com",
)
_AZURE: Final = "https://blob.core.windows.net"
_AZURE_TOKENS: Final = (
    "https://login.microsoftonline.com",
    "https://login.microsoftonline.us",
    "https://login.partner.microsoftonline.cn",
)
# The metadata service of the cloud that the machine runs in.
_INSTANCE: Final = ("http://169.254.169.254", "http://metadata.google.internal")
# Environment variables that name another token service to a cloud's own chain, either as a host or
# as an address.
_ELSEWHERE: Final = (
    "GCE_METADATA_HOST",
    "GCE_METADATA_ROOT",
    "GCE_METADATA_IP",
    "METADATA_HOST",
    "METADATA_IP",
    "AZURE_AUTHORITY_HOST",
    "IDENTITY_ENDPOINT",
    "MSI_ENDPOINT",
)


class _KeyFile(msgspec.Struct):
    token_uri: str | None = None


def hosts_of(settings: config.Store, scheme: str) -> list[str]:
    """The addresses of the allowed hosts; the store's own comes first."""
    is_google = scheme == "gs"
    own = settings.endpoint_url or (_GOOGLE if is_google else _AZURE)
    if settings.anon or settings.token or settings.secret:
        return [own]
    tokens = [*(_GOOGLE_TOKENS if is_google else _AZURE_TOKENS)]
    file = settings.key_file or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if is_google and file:
        tokens += _named_in(Path(file))
    if not settings.key_file:
        tokens += _INSTANCE
        named = filter(None, map(os.environ.get, _ELSEWHERE))
        tokens += [one if "://" in one else f"http://{one}" for one in named]
    return [own, *tokens]


def _named_in(file: Path) -> list[str]:
    """The token service that a key file names. Empty for a bad file, which obstore reports."""
    try:
        found = msgspec.json.decode(file.read_bytes(), type=_KeyFile)
    except (OSError, msgspec.MsgspecError):
        return []
    return [found.token_uri] if found.token_uri else []
