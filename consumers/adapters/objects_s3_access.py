"""How a bucket of S3 is reached: under which address, and with whose credentials.

Rule: what is configured comes before what AWS's own chain finds (environment, profile, web
identity, container, instance); the chain is asked in a thread, since it may send a request to a
token service; what it finds is used for `GOOD_FOR_S`. Owner: the clients of S3.
"""

import asyncio
import re
import time
from typing import Any, Final
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError
from botocore.session import Session

from consumers import config
from consumers.adapters.objects_common import (
    DEFAULT_REGION,
    RENEW_S,
    check_credentials,
    no_credentials,
)
from consumers.adapters.s3_signature import Credentials

# botocore hands out nothing that has less than ten minutes left: a minute is on the safe side.
GOOD_FOR_S: Final = 60.0
# Where no credentials were found, their sources are not asked again for every object.
PAUSE_S: Final = 1.0
# What can be the first part of a host's name under a certificate of `*.host`.
_LABEL = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")


def is_virtual(settings: config.Access, bucket: str) -> bool:
    """Is the bucket a part of the host's name? AWS prefers that, most others know only paths."""
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
    """Credentials that are at hand. Any number of tasks. The clock is asked itself: to ask for the
    running loop costs Python 3.11 a getpid for each object.
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
        """None where there are none at this moment: the client behind says what is wrong. While one
        task asks, the others go on with what there is.
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
        """The store takes them no longer: a file may have others by now. Not all the time."""
        now_s = time.monotonic()
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + RENEW_S
            self._source = self._found = None
            self._asked_s = now_s - GOOD_FOR_S


def _region(session: Session) -> str | None:
    region: str | None = session.get_config_variable("region")
    return region
