"""Authenticates the connections of every client of aiokafka in the process, and again before a
session ends.

Rule: a session is renewed in place (KIP-368), at 85 to 95 % of its life, or a second before its end
if that is earlier: requests wait while the broker checks who we are. Without this the broker cuts
the connection at the first request after the end. The new token is fetched before, so a provider
that is slow holds up nothing while the session lasts.

A broker answers a bad token with a challenge, and fails only after the client's next message (RFC
7628). aiokafka takes the challenge for success, so here that message is sent. Private parts of
aiokafka 0.14's connection.
"""

import asyncio
import logging
from math import inf
from random import uniform
from typing import Any, Final

from aiokafka import errors as kafka_errors
from aiokafka.conn import AIOKafkaConnection, CloseReason, OAuthAuthenticator
from aiokafka.protocol.admin import SaslAuthenticateRequest, SaslHandShakeRequest

from penstock.adapters.kafka.identity.identity import Identity, identity_with, of_kerberos
from penstock.adapters.kafka.identity.tokens import Token
from penstock.errors import Fatal

log = logging.getLogger(__name__)

# SaslHandshake and SaslAuthenticate.
_SASL: Final = frozenset({17, 36})
# By the broker, and by an authenticator of aiokafka's.
_REFUSED: Final = (
    kafka_errors.SaslAuthenticationFailed,
    kafka_errors.AuthenticationFailedError,
)
# As Java's clients: at a random point, so that not all connections renew at once.
RENEW_AT: Final = (0.85, 0.95)
# A broker refuses to renew a session that is younger than a second.
YOUNGEST_S: Final = 1.1
# Sessions of some seconds are renewed earlier, and their last part is not used: broker and network
# may take so long for a request, and a request that comes late costs the connection.
EARLY_S: Final = 1.0
LATEST_S: Final = 0.2
# A provider that is away is asked again after this time, while the session lasts.
AGAIN_S: Final = 1.0


class _BearerAuthenticator(OAuthAuthenticator):  # type: ignore[misc]
    """`token`: the one to show."""

    def __init__(self, identity: Identity, token: str) -> None:
        super().__init__(sasl_oauth_token_provider=self)
        self._token, self.extensions = token, identity.extensions

    async def token(self) -> str:
        return self._token

    async def step(self, challenge: bytes | None) -> tuple[bytes, bool] | None:
        if challenge:
            return b"\x01", True
        step: tuple[bytes, bool] | None = await super().step(challenge)
        return step


class AuthenticatedConnection(AIOKafkaConnection):  # type: ignore[misc]
    def __init__(self, *where: Any, **options: Any) -> None:
        super().__init__(*where, **options)
        identity = self._sasl_oauth_token_provider
        self._identity = (
            identity if isinstance(identity, Identity) else identity_with(self._ssl_context)
        )
        # From when on requests wait for a new session, and what they wait for meanwhile.
        self._ends_s = inf
        self._renewed: asyncio.Event | None = None
        self._renewal: asyncio.TimerHandle | asyncio.Task[None] | None = None

    async def connect(self) -> Any:
        if self._identity is not None:
            self._identity.renew_certificates()
            # The identity's, because Faust cannot be told of each mechanism.
            self._sasl_mechanism = self._identity.mechanism
        ends = await super().connect()
        if self._writer is None:
            raise kafka_errors.KafkaConnectionError(f"{self.host}:{self.port} closed at once")
        return ends

    def send(self, request: Any, expect_response: bool = True) -> Any:
        if self._renewal is not None and request.API_KEY not in _SASL:
            if self._loop.time() >= self._ends_s:
                self._hold_back()
            if self._renewed is not None:
                return self._send_behind(self._renewed, request, expect_response)
        return super().send(request, expect_response)

    async def _send_behind(self, renewed: asyncio.Event, *arguments: Any) -> Any:
        await renewed.wait()
        return await self.send(*arguments)

    async def _do_sasl_handshake(self) -> None:
        assert self._identity is not None
        token = None
        try:
            if self._sasl_mechanism == "OAUTHBEARER":
                token = await self._identity.present_token()
            await self._authenticate(self._authenticator(self._identity, token))
        except _REFUSED as error:
            self.close(reason=CloseReason.AUTH_FAILURE, exc=error)
            if self._identity.note_refusal(token):
                raise
            raise kafka_errors.KafkaConnectionError("the token ended on its way") from error
        except (kafka_errors.KafkaError, OSError, TimeoutError):
            raise
        # A file that cannot be read, or Kerberos' own errors. At any other error than its own
        # aiokafka would stop asking the brokers, for ever.
        except Exception as error:
            ours = error
            if self._sasl_mechanism == "GSSAPI" and isinstance(ours := of_kerberos(error), Fatal):
                self._identity.note_refusal(None)
            raise kafka_errors.KafkaConnectionError(f"{ours}" or repr(ours)) from ours

    def _authenticator(self, identity: Identity, token: Token | None) -> Any:
        if token is not None:
            return _BearerAuthenticator(identity, token.text)
        if self._sasl_mechanism == "GSSAPI":
            return self.authenticator_gssapi()
        self._sasl_plain_username = identity.username
        self._sasl_plain_password = identity.password
        is_plain = self._sasl_mechanism == "PLAIN"
        return self.authenticator_plain() if is_plain else self.authenticator_scram()

    async def _authenticate(self, authenticator: Any) -> None:
        handshake = await self.send(SaslHandShakeRequest(self._sasl_mechanism))
        if handshake.error_code:
            error = kafka_errors.for_code(handshake.error_code)
            offered = ", ".join(handshake.enabled_mechanisms)
            raise error(f"the broker takes {offered or 'none'}, not {self._sasl_mechanism}")
        challenge, session_ms = None, 0
        begun_s = self._loop.time()
        while (step := await authenticator.step(challenge)) is not None:
            begun_s = self._loop.time()
            answer = await self.send(SaslAuthenticateRequest(step[0]))
            if answer.error_code:
                raise kafka_errors.for_code(answer.error_code)(answer.error_message)
            challenge = answer.sasl_auth_bytes
            session_ms = getattr(answer, "session_lifetime_ms", 0)
        session_s = session_ms / 1000
        renew_s = min(uniform(*RENEW_AT) * session_s, session_s - EARLY_S)
        renew_s = max(renew_s, YOUNGEST_S)
        self._ends_s = inf
        if renew_s < session_s and self._writer is not None:
            self._ends_s = begun_s + session_s - LATEST_S
            self._renewal = self._loop.call_later(renew_s, self._begin_renewal)

    def _begin_renewal(self) -> None:
        self._renewal = self._loop.create_task(self._renew())

    async def _renew(self) -> None:
        try:
            if self._sasl_mechanism == "OAUTHBEARER":
                assert self._identity is not None
                await self._identity.present_token()
            self._hold_back()
            await self._do_sasl_handshake()
        except (kafka_errors.KafkaError, TimeoutError, OSError) as error:
            if self._renewed is None:
                self._renewal = self._loop.call_later(AGAIN_S, self._begin_renewal)
                return
            log.warning("the session with %s:%d was not renewed: %r", self.host, self.port, error)
            self.close(reason=CloseReason.AUTH_FAILURE, exc=error)
        finally:
            if self._renewed is not None:
                self._renewed.set()
                self._renewed = None

    def _hold_back(self) -> None:
        self._renewed = self._renewed or asyncio.Event()

    def close(self, reason: Any = None, exc: Any = None) -> Any:
        renewal, self._renewal = self._renewal, None
        if renewal is not None and renewal is not asyncio.current_task(self._loop):
            renewal.cancel()
        return super().close(reason, exc)
