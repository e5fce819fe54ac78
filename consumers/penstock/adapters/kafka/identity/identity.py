"""Who we are to the brokers: one value for all clients of a process, of aiokafka, librdkafka and
Faust alike.

Rule: what may change on disk (a password, a certificate, a token) is read for each new connection.
A Kerberos centre that cannot be reached is an outage; one that refuses us, or a keytab that cannot
be used, ends the process with its words.
"""

import asyncio
import logging
import os
import ssl
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError
from aiokafka.helpers import create_ssl_context

from penstock import config
from penstock.adapters.kafka.identity.tokens import BrokerTokens, Token
from penstock.errors import Fatal, PenstockError, Transient, usage
from penstock.packages import missing_extra

log = logging.getLogger(__name__)

# How the keys begin that say who we are, and to whom.
_OF_IDENTITY: Final = ("bootstrap_", "security_", "sasl_", "oauth", "kerberos_", "ssl_")

_identities: dict[bytes, "Identity"] = {}


class Identity(AbstractTokenProvider):  # type: ignore[misc]
    """Get it from `identity_of`. `mechanism`: None without SASL."""

    def __init__(self, kafka: config.Kafka) -> None:
        self._kafka = kafka
        self.protocol: Final = kafka.security_protocol
        self.mechanism: Final = _mechanism(kafka)
        self.username: Final = kafka.sasl_username
        self._read_at: tuple[float, ...] = ()
        self._waiting: set[asyncio.Future[None]] = set()
        check_login(kafka)
        if self.mechanism == "OAUTHBEARER":
            from penstock.adapters.kafka.identity.providers import fetcher  # noqa: PLC0415 (few need it)

            self._tokens = BrokerTokens(fetcher(kafka))
        elif self.mechanism == "GSSAPI":
            check_kerberos(kafka)

    @property
    def password(self) -> str:
        """Raises `Fatal` if the file cannot be read."""
        path = self._kafka.sasl_password_file
        if path is None:
            return self._kafka.sasl_password or ""
        try:
            return config.secret_text(path).strip("\r\n")
        except (OSError, ValueError) as error:
            raise usage(f"kafka.sasl_password_file {path} cannot be read: {error}") from error

    def current_token(self) -> Token:
        """For threads, because it may ask the provider. Raises `PenstockError`."""
        try:
            return self._tokens.current()
        except Fatal:
            self.note_refusal(None)
            raise

    def note_refusal(self, token: Token | None) -> bool:
        """A broker refused us, by this token if it was one: a key may have been changed, and the
        next token may do. Or a provider refuses us, and no token serves any more. False: the token
        ended on its way, which is no refusal. For any thread.
        """
        if token is not None and not self._tokens.forget(token):
            return False
        for waiting in tuple(self._waiting):
            waiting.get_loop().call_soon_threadsafe(_end, waiting)
        return True

    async def refused(self) -> None:
        """Returns when a broker or a provider refuses us."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)

    @property
    def provider_away(self) -> tuple[float, str] | None:
        return self._tokens.away if self.mechanism == "OAUTHBEARER" else None

    async def token(self) -> str:
        """For aiokafka. Raises like `present_token`."""
        return (await self.present_token()).text

    async def present_token(self) -> Token:
        """Raises `KafkaConnectionError`, whose cause is ours: at any other error aiokafka would
        stop asking the brokers, for ever.
        """
        try:
            return await self._tokens.awaited()
        except PenstockError as error:
            if isinstance(error, Fatal):
                self.note_refusal(None)
            raise KafkaConnectionError(str(error)) from error

    async def has_token(self) -> bool:
        try:
            await self.present_token()
        except KafkaConnectionError:
            return False
        return True

    def extensions(self) -> dict[str, str]:
        return dict(self._kafka.oauth.extensions) if self._kafka.oauth else {}

    @cached_property
    def tls(self) -> ssl.SSLContext | None:
        if not self.protocol.endswith("SSL"):
            return None
        self._read_at = self.certificates_written_at()
        try:
            return self._made()
        except OSError as error:
            raise usage(
                f"kafka.ssl_cafile, ssl_certfile or ssl_keyfile cannot be used: {error}"
            ) from error

    def _made(self) -> ssl.SSLContext:
        kafka = self._kafka
        context: ssl.SSLContext = create_ssl_context(
            cafile=kafka.ssl_cafile, certfile=kafka.ssl_certfile, keyfile=kafka.ssl_keyfile
        )
        return context

    def renew_certificates(self) -> None:
        """Read the files again if they were written anew. Connections that are open stay as they
        are. Files that do not fit together yet are read at the next connection.
        """
        context, kafka = self.tls, self._kafka
        if context is None or (written_at := self.certificates_written_at()) == self._read_at:
            return
        try:
            # A pair of which only a half is written would leave the context without any.
            self._made()
            if kafka.ssl_cafile:
                context.load_verify_locations(kafka.ssl_cafile)
            if kafka.ssl_certfile:
                context.load_cert_chain(kafka.ssl_certfile, kafka.ssl_keyfile)
        except OSError as error:
            log.warning("the certificates for Kafka were written anew but do not fit: %s", error)
            return
        self._read_at = written_at
        log.info("the certificates for Kafka were read anew")

    def certificates_written_at(self) -> tuple[float, ...]:
        kafka = self._kafka
        files = (kafka.ssl_cafile, kafka.ssl_certfile, kafka.ssl_keyfile)
        try:
            return tuple(Path(file).stat().st_mtime for file in files if file)
        except OSError:
            return self._read_at  # it is being replaced


def _end(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def identity_with(context: ssl.SSLContext | None) -> Identity | None:
    """The identity that has this TLS context: Faust's clients know nothing else of it."""
    if context is None:
        return None
    return next((identity for identity in _identities.values() if identity.tls is context), None)


def provider_away() -> tuple[float, str] | None:
    """For how many seconds the provider of this process's tokens has given none, and why."""
    outages = (identity.provider_away for identity in _identities.values())
    return max((outage for outage in outages if outage is not None), default=None)


def identity_of(kafka: config.Kafka) -> Identity:
    """One for each different configuration of a process. Raises `Fatal` if a key, a file or an
    extra is missing.
    """
    keys = [key for key in kafka.__struct_fields__ if key.startswith(_OF_IDENTITY)]
    key = msgspec.json.encode([getattr(kafka, key) for key in keys])
    if key not in _identities:
        _identities[key] = Identity(kafka)
    return _identities[key]


def _mechanism(kafka: config.Kafka) -> str | None:
    is_sasl = kafka.security_protocol.startswith("SASL")
    return (kafka.sasl_mechanism or "PLAIN") if is_sasl else None


def check_login(kafka: config.Kafka) -> None:
    """Raises `Fatal` if the mechanism lacks a key. Reads no file."""
    mechanism = _mechanism(kafka)
    if mechanism == "OAUTHBEARER":
        from penstock.adapters.kafka.identity.providers import provider_of  # noqa: PLC0415 (few need it)

        provider_of(kafka)
    elif mechanism not in (None, "GSSAPI"):
        _check_password(kafka)


def _check_password(kafka: config.Kafka) -> None:
    if kafka.sasl_password is not None and kafka.sasl_password_file is not None:
        raise usage(
            "kafka.sasl_password and sasl_password_file are both set; leave one of them out"
        )
    if kafka.sasl_username is None or (kafka.sasl_password or kafka.sasl_password_file) is None:
        raise usage(
            f"kafka.security_protocol = {kafka.security_protocol!r} needs kafka.sasl_username, and "
            "kafka.sasl_password or sasl_password_file"
        )


# MIT's library fetches and renews tickets by itself if this variable names a keytab, and keeps them
# in the cache that the other names.
_KEYTAB: Final = "KRB5_CLIENT_KTNAME"
_CACHE: Final = "KRB5CCNAME"
# Numbers of krb5.h, without their sign: the centre cannot be reached, or found, or is not available
# now; a ticket has ended, which whoever fills the cache may be about to renew.
_PASSING: Final = frozenset(
    number & 0xFFFFFFFF for number in (-1765328228, -1765328230, -1765328355, -1765328352)
)


def check_kerberos(kafka: config.Kafka) -> None:
    """Raises `Fatal` if the extra is missing."""
    try:
        import gssapi  # noqa: F401, PLC0415 (an extra)
    except ImportError as error:
        raise missing_extra('kafka.sasl_mechanism = "GSSAPI"', "kerberos", error) from error
    if kafka.kerberos_keytab is not None:
        os.environ[_KEYTAB] = kafka.kerberos_keytab
        os.environ.setdefault(_CACHE, "MEMORY:penstock")


def of_kerberos(error: Exception) -> PenstockError:
    """Our error for one of gssapi's."""
    if getattr(error, "min_code", None) in _PASSING:
        return Transient(f"Kerberos gives no ticket now: {error}")
    return usage(
        f"Kerberos gives no ticket: {error}\n"
        "Correct kafka.kerberos_keytab, or fill the ticket cache by kinit."
    )
