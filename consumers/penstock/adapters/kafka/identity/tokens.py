"""The token of this process, which all its clients share, and its renewal before it ends.

Rule: the next token is fetched after four fifths of a token's life, by one thread at a time, which
is no thread of an event loop's executor: a provider that hangs must not hold up DNS. Meanwhile the
old token serves. A provider that fails is asked again after a pause that grows, however many
connections want a token: without it two clients asked one 45 times a second. A clock that is set
back makes neither a token last longer nor a pause.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, NamedTuple

from penstock.errors import PenstockError, Transient

log = logging.getLogger(__name__)

# By then a new token is fetched. A connection authenticates itself again at 85 % of its session or
# later, and the session ends with its token, so it finds a new one.
RENEW_AT: Final = 0.8
# For the last part of its life a token does not serve: it might end on its way to a broker, whose
# refusal would look like that of a wrong one.
LAST_PART: Final = 0.1
# While a token serves, a connection waits at most this long for the next one.
NEXT_S: Final = 1.0
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 15.0


class Token(NamedTuple):
    """`begun_s`, `ends_s`: seconds since the epoch, by our clock. `principal`: whom it is about,
    for librdkafka, which wants a name. `took_s`: how long the provider took.
    """

    text: str
    begun_s: float
    ends_s: float
    principal: str = "penstock"
    took_s: float = 0.0

    def wants_renewal(self, now_s: float) -> bool:
        """A provider that is slow for the life of its tokens is asked so much earlier."""
        left_s = max((1 - RENEW_AT) * self._life_s, LAST_PART * self._life_s + self.took_s)
        return now_s >= self.ends_s - left_s

    def serves(self, now_s: float) -> bool:
        return now_s < self.ends_s - LAST_PART * self._life_s

    @property
    def _life_s(self) -> float:
        return self.ends_s - self.begun_s


class BrokerTokens:
    """`fetch`: asks the provider, and may block. Raises `Transient` or `Fatal`."""

    def __init__(
        self,
        fetch: Callable[[], Token],
        wall_s: Callable[[], float] = time.time,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch, self._wall_s, self._now_s = fetch, wall_s, now_s
        self._turn = threading.Lock()
        self._token: Token | None = None
        # What the wall's clock was ahead of the other when the token came.
        self._ahead_s = 0.0
        self._fetched: Future[Token] = _failed(Transient("no token was asked for yet"))
        self._failure: PenstockError | None = None
        self._failed_since_s = 0.0
        self._pause_s, self._again_s = FIRST_PAUSE_S, 0.0

    def current(self) -> Token:
        """For threads, because it may wait for the provider. Raises what `fetch` raises if no token
        serves.
        """
        token, fetched = self._token_and_next()
        if token is None:
            return fetched.result()
        try:
            return fetched.result(NEXT_S)
        except (PenstockError, TimeoutError):
            return token

    async def awaited(self) -> Token:
        """The same, for event loops."""
        token, fetched = self._token_and_next()
        # Others wait for the same one.
        coming = asyncio.shield(asyncio.wrap_future(fetched))
        if token is None:
            return await coming
        try:
            async with asyncio.timeout(NEXT_S):
                return await coming
        except (PenstockError, TimeoutError):
            return token

    @property
    def away(self) -> tuple[float, str] | None:
        """For how many seconds the provider has given no token, and why; None while it gives."""
        failure = self._failure
        return None if failure is None else (self._now_s() - self._failed_since_s, str(failure))

    def forget(self, refused: Token) -> bool:
        """A broker refused this token: another one is fetched, if none was yet. False: the token
        ended on its way, so its refusal tells nothing.
        """
        if not refused.serves(self._of_token_s()):
            return False
        token = self._token  # another thread may forget it at the same time
        if token is not None and token.text == refused.text:
            self._token = None
        return True

    def _of_token_s(self) -> float:
        """The time by which tokens end: a machine that slept is told it by the wall's clock."""
        return max(self._wall_s(), self._now_s() + self._ahead_s)

    def _token_and_next(self) -> tuple[Token | None, Future[Token]]:
        """The token that serves now, if there is one, and the one to take if it comes in time."""
        with self._turn:
            now_s, token = self._of_token_s(), self._token
            if token is not None and not token.wants_renewal(now_s):
                return token, _done(token)
            if self._fetched.done():
                if self._failure is not None and self._now_s() < self._again_s:
                    self._fetched = _failed(self._failure)
                else:
                    self._fetched = Future()
                    try:
                        threading.Thread(target=self._renew, name="token", daemon=True).start()
                    except RuntimeError as error:  # the system has no thread left
                        self._fail(error, self._now_s())
            serves = token is not None and token.serves(now_s)
            return (token if serves else None), self._fetched

    def _renew(self) -> None:
        begun_s = self._now_s()
        try:
            token = self._fetch()
            if not token.serves(self._wall_s()):
                raise Transient("the provider's token has ended already: compare the clocks")
        # A provider's library may raise anything, and nobody else would tell it.
        except BaseException as error:
            self._fail(error, begun_s)
        else:
            if self._failure is not None:
                log.info("there are tokens for Kafka again")
            self._ahead_s = self._wall_s() - self._now_s()
            self._token, self._failure, self._pause_s = token, None, FIRST_PAUSE_S
            self._fetched.set_result(token)

    def _fail(self, error: BaseException, begun_s: float) -> None:
        # The repr of some errors has the secret that a library read (a token file's bytes).
        message = f"{type(error).__name__}: {error}"
        ours = error if isinstance(error, PenstockError) else Transient(message)
        if self._failure is None:
            self._failed_since_s = begun_s
            log.warning("no token for Kafka: %s", ours)
        self._again_s = self._now_s() + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._failure = ours
        self._fetched.set_exception(ours)


def _done(token: Token) -> Future[Token]:
    future: Future[Token] = Future()
    future.set_result(token)
    return future


def _failed(error: PenstockError) -> Future[Token]:
    future: Future[Token] = Future()
    future.set_exception(error)
    return future
