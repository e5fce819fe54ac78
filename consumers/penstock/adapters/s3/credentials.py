"""The credentials for our own GETs to S3.

Rule: configured credentials come first, then those that AWS's own chain finds (environment,
profile, web identity, container, instance). The chain is asked in a thread, because it may send a
request to a token service; its answer is used for `GOOD_FOR_S`. Owner: `direct_get`.
"""

import asyncio
import time
from typing import Any, Final, NamedTuple

from botocore.exceptions import BotoCoreError
from botocore.session import Session

from penstock import config
from penstock.adapters.s3.addresses import DEFAULT_REGION
from penstock.adapters.stores.refusals import RENEW_S, no_credentials
from penstock.errors import usage

# A minute is safe: credentials from botocore last ten minutes at least.
GOOD_FOR_S: Final = 60.0
# After the chain was asked, it is not asked again for this long, even if it had no credentials.
PAUSE_S: Final = 1.0


class Credentials(NamedTuple):
    """`token`: None, except for temporary credentials."""

    key: str
    secret: str
    token: str | None = None


def check_credentials(settings: config.Access, section: str) -> None:
    if (settings.key is None) != (settings.secret is None):
        raise usage(f"{section}.key and {section}.secret go together: set both or neither")
    if settings.token is not None and settings.key is None:
        raise usage(f"{section}.token goes together with {section}.key and {section}.secret")


class CredentialSource:
    """Keeps credentials for any number of tasks. It reads `time.monotonic` instead of the loop's
    clock, because `get_running_loop` costs a getpid per call in Python 3.11.
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
            found: str | None = session.get_config_variable("region")
            self.region = settings.region or found or DEFAULT_REGION
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
        """The credentials; None if the chain must be asked first. As long as the credentials do not
        change, this is the same object, so that callers can compare by identity.
        """
        if self._fixed is not None:
            return self._fixed
        age_s = time.monotonic() - self._asked_s
        return self._found if age_s < GOOD_FOR_S else None

    async def ask(self) -> Credentials | None:
        """Ask the chain. While one task asks, other tasks get the credentials of the last answer.
        None if there are no credentials: then the caller lets the next client ask the store, and
        that client's error says what is wrong.
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
        # A local name: `look_again` may remove the source while this thread uses it.
        source = self._source or self._session().get_credentials()
        self._source = source
        if source is None:
            return None
        frozen = source.get_frozen_credentials()
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token)

    def look_again(self) -> None:
        """Call this when the store refused the credentials. The next request asks the chain again,
        because a credentials file may have been renewed; this happens at most once in `RENEW_S`.
        """
        now_s = time.monotonic()
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + RENEW_S
            self._source = self._found = None
            self._asked_s = now_s - GOOD_FOR_S
