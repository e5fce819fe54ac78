"""The token of this process, which all its clients share.

Rule: a token is fetched anew when four fifths of its life are over, by one thread at a time, and
never on an event loop. While the provider is away the old token serves until it ends. A provider
that fails is asked again after a pause that grows, however many connections want a token: without
pauses two clients asked one 45 times a second.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.errors import PenstockError

# By then a new token is fetched. A connection authenticates itself again at 85 % of its session,
# which ends with its token, so it finds a new one.
RENEW_AT: Final = 0.8
# For the last part of its life a token does not serve: it might end on its way to a broker, whose
# refusal would look like that of a wrong one.
LAST_PART: Final = 0.1
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 15.0


class Token(NamedTuple):
    """`begun_s`, `ends_s`: seconds since the epoch, by our clock. `principal`: whom it is about,
    for librdkafka, which wants a name.
    """

    text: str
    begun_s: float
    ends_s: float
    principal: str = "penstock"

    def wants_renewal(self, now_s: float) -> bool:
        return now_s >= self.begun_s + RENEW_AT * self._life_s

    def serves(self, now_s: float) -> bool:
        return now_s < self.ends_s - LAST_PART * self._life_s

    @property
    def _life_s(self) -> float:
        return self.ends_s - self.begun_s


class Tokens:
    """`fetch`: asks the provider, and may block. Raises `Transient` or `Fatal`."""

    def __init__(self, fetch: Callable[[], Token], now_s: Callable[[], float] = time.time) -> None:
        self._fetch, self._now_s = fetch, now_s
        self._turn = threading.Lock()
        self._token: Token | None = None
        self._failure: PenstockError | None = None
        self._failed_since_s = 0.0
        self._pause_s, self._again_s = FIRST_PAUSE_S, 0.0

    def current(self) -> Token:
        """May block; for threads. Raises what `fetch` raises if there is no token that lives."""
        token = self._token
        if token is not None and not token.wants_renewal(self._now_s()):
            return token
        with self._turn:
            return self._renewed()

    @property
    def away(self) -> tuple[float, str] | None:
        """For how many seconds the provider has given no token, and why; None while it gives."""
        failure = self._failure
        return None if failure is None else (self._now_s() - self._failed_since_s, str(failure))

    def forget(self, text: str) -> None:
        """A broker refused this token: the next one is fetched."""
        token = self._token
        if token is not None and token.text == text:
            self._token = None

    def _renewed(self) -> Token:
        now_s, token = self._now_s(), self._token
        if token is not None and not token.wants_renewal(now_s):
            return token  # another thread has fetched it meanwhile
        if self._failure is None or now_s >= self._again_s:
            try:
                token = self._token = self._fetch()
                self._failure, self._pause_s = None, FIRST_PAUSE_S
            except PenstockError as error:
                if self._failure is None:
                    self._failed_since_s = now_s
                self._failure = error
                self._again_s = self._now_s() + self._pause_s
                self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        if token is not None and token.serves(self._now_s()):
            return token
        assert self._failure is not None
        raise self._failure
