"""How a bucket of S3 is reached: its address and the credentials.

Rule: configured credentials come first, then those that AWS's own chain finds (environment,
profile, web identity, container, instance). The chain is asked in a thread, since it may send a
request to a token service; its answer is used for `GOOD_FOR_S`. Owner: the clients of S3.
"""

import asyncio
import re
import time
from typing import Any, Final
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError
from botocore.session import Session

from penstock import config
from penstock.adapters.s3.signature import Credentials
from penstock.adapters.stores.names import (
    DEFAULT_REGION,
    RENEW_S,
    check_credentials,
    no_credentials,
)

# A minute is safe: credentials from botocore last ten minutes at least.
GOOD_FOR_S: Final = 60.0
# If no credentials are found, the chain is not asked again for this long.
PAUSE_S: Final = 1.0
# A bucket name that can be the first label of a host, as a certificate for `*.host` covers it.
_LABEL = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")


def is_virtual(settings: config.Access, bucket: str) -> bool:
    """True if the bucket is part of the host's name: AWS prefers that, most others cannot."""
    if settings.addressing == "auto":
        return settings.endpoint_url is None and _LABEL.fullmatch(bucket) is not None
    return settings.addressing == "virtual" and _LABEL.fullmatch(bucket) is not None


def address_of(settings: config.Access, region: str, bucket: str) -> tuple[str, str]:
    """Scheme and host, and the path before the keys."""
    end = ".cn" if region.startswith("cn-") else ""
    endpoint = settings.endpoint_url or f"https://s3.{region}.amazonaws.com{end}"
    parts = urlsplit(endpoint)
    path = parts.path.rstrip("/")
    netloc = parts.netloc.rpartition("@")[2]
    if is_virtual(settings, bucket):
        return f"{parts.scheme}://{bucket}.{netloc}", path
    return f"{parts.scheme}://{netloc}", f"{path}/{bucket}"


class Keys:
    """Keeps credentials at hand for any number of tasks. It uses `time.monotonic` instead of the
    loop's clock, because `get_running_loop` costs a getpid per call in Python 3.11.
    """

    def __init__(self, settings: config.Access, section: str) -> None:
        check_credentials(settings, section)
        self._settings = settings
        self._fixed: Credentials | None = None
        self._found: Credentials | None = None
        self._source: Any = None
        self._asked_s = -GOOD_FOR_S
        self._next_look_s = 0.0
        try:
            session = self._session()
            self.region = settings.region or _region(session) or DEFAULT_REGION
            if settings.key is not None and settings.secret is not None:
                self._fixed = Credentials(settings.key, settings.secret, settings.token)
            else:
                self._source = session.get_credentials()
        except BotoCoreError as error:
            raise no_credentials(error, section) from None

    def _session(self) -> Session:
        return Session(profile=self._settings.profile)

    @property
    def at_hand(self) -> Credentials | None:
        if self._fixed is not None:
            return self._fixed
        age_s = time.monotonic() - self._asked_s
        return self._found if age_s < GOOD_FOR_S else None

    async def ask(self) -> Credentials | None:
        """Ask the chain. None if it has no credentials now: the client behind then says what is
        wrong. While one task asks, the others use those that are known.
        """
        now_s = time.monotonic()
        if now_s - self._asked_s < PAUSE_S:
            return self._found
        self._asked_s = now_s
        try:
            found = await asyncio.to_thread(self._look)
        except BotoCoreError:
            return self._found
        if found != self._found:
            self._found = found
        return self._found

    def _look(self) -> Credentials | None:
        if self._source is None:
            self._source = self._session().get_credentials()
        if self._source is None:
            return None
        frozen = self._source.get_frozen_credentials()
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token)

    def look_again(self) -> None:
        """Called when the store refuses the credentials: ask the chain again, as a file may have
        new ones by now; at most every `RENEW_S`.
        """
        now_s = time.monotonic()
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + RENEW_S
            self._source = self._found = None
            self._asked_s = now_s - GOOD_FOR_S


def _region(session: Session) -> str | None:
    region: str | None = session.get_config_variable("region")
    return region
