"""Who we are, as librdkafka is told.

Rule: what is renewed on disk counts for the connections that follow. librdkafka reads a password
and a certificate only when a client is made, and keeps a token that a broker refused until it is
old. So a new password is handed over; for another certificate or token the source makes a new
client, but only when the present one is refused, because that costs a rebalance.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaError

from penstock import config
from penstock.adapters.kafka.identity.identity import identity_of
from penstock.adapters.kafka.identity.tokens import Token
from penstock.errors import Fatal, usage

# How soon a password that was written anew is handed over.
LOOK_S: Final = 1.0
# How librdkafka tells a broker's refusal. It gives the same code to a connection that broke
# meanwhile, and to a provider that gives no token.
_REFUSAL: Final = "SASL authentication error"


class ClientLogin:
    """`is_refused`: a broker refused the present client, and a new one may do better."""

    def __init__(self, settings: config.Kafka, now_s: Callable[[], float] = time.monotonic) -> None:
        self.is_refused = False
        self._settings = settings
        self._now_s = now_s
        self._looked_s = now_s()
        self._password: str | None = None
        self._token: Token | None = None
        self._read_at: tuple[float, ...] = ()

    def options(self) -> dict[str, Any]:
        """Those of a new client. Raises `Fatal` if librdkafka has no such mechanism."""
        settings, self.is_refused = self._settings, False
        options: dict[str, Any] = {"security.protocol": settings.security_protocol}
        if settings.security_protocol == "PLAINTEXT":
            return options
        if settings.security_protocol.endswith("SSL"):
            self._read_at = identity_of(settings).certificates_written_at()
            options["ssl.ca.location"] = settings.ssl_cafile
            options["ssl.certificate.location"] = settings.ssl_certfile
            options["ssl.key.location"] = settings.ssl_keyfile
        if settings.security_protocol.startswith("SASL"):
            options |= self._sasl()
        return options

    def _sasl(self) -> dict[str, Any]:
        identity = identity_of(self._settings)
        if identity.mechanism == "GSSAPI":
            raise usage(
                'kafka.client = "confluent" has no Kerberos: its package is built without; set '
                'kafka.client = "aiokafka"'
            )
        if identity.mechanism == "OAUTHBEARER":
            return {"sasl.mechanism": identity.mechanism, "oauth_cb": self._current_token}
        self._password = identity.password
        return {
            "sasl.mechanism": identity.mechanism,
            "sasl.username": identity.username,
            "sasl.password": self._password,
        }

    def _current_token(self, _: str) -> tuple[str, float, str, dict[str, str]]:
        """librdkafka calls this in the thread that polls, when four fifths of a token are over."""
        identity = identity_of(self._settings)
        current = identity.current_token()
        self._token = current
        return current.text, current.ends_s, current.principal, identity.extensions()

    def follow(self, consumer: Any) -> None:
        """Hand over a password that was written anew. Call this on the thread, between two
        reads.
        """
        if self._settings.sasl_password_file is None or self._now_s() < self._looked_s + LOOK_S:
            return
        self._looked_s = self._now_s()
        identity = identity_of(self._settings)
        with suppress(Fatal):  # it is being written; the former one serves meanwhile
            if self._password not in (None, password := identity.password):
                consumer.set_sasl_credentials(identity.username, password)
                self._password = password

    def note(self, error: KafkaError) -> None:
        """Look whether the error is a refusal of what the client shows. Called on the thread."""
        identity = identity_of(self._settings)
        # Over TLS 1.3 a broker that takes no such certificate just ends the connection.
        if error.code() in (KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN):
            self.is_refused |= identity.certificates_written_at() != self._read_at
        elif error.code() == KafkaError._AUTHENTICATION and _REFUSAL in error.str():
            self.is_refused |= identity.note_refusal(self._token) and self._token is not None

    async def has_token(self) -> bool:
        """Is there a token for a new client, if it shows one? Without one, librdkafka's constructor
        would block for ten seconds, and end with a `SystemError`.
        """
        return self._token is None or await identity_of(self._settings).has_token()
