"""The options of librdkafka's consumer, the login that it is told, the topics that it reads, and
the membership that it reports.

Rule: our code decides where to read and what to commit, so automatic commits and resets are off.
Session and assignor are the same as with aiokafka.

What is renewed on disk counts for the connections that follow. librdkafka reads a password and a
certificate only when a client is made, and keeps a token that a broker refused until it is old. So
a new password is handed over; for another certificate or token the source makes a new client, but
only when the present one is refused, because that costs a rebalance.
"""

import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from penstock import config
from penstock.adapters.kafka.group.membership import GroupMember, instance_of
from penstock.adapters.kafka.identity.identity import identity_of
from penstock.adapters.kafka.identity.tokens import Token
from penstock.adapters.kafka.source import METADATA_MAX_AGE_MS
from penstock.errors import Fatal, usage

# How often librdkafka asks which broker is the coordinator. If there is no coordinator, a commit
# fails after this time. librdkafka's default is ten minutes.
COORDINATOR_MS = 5_000
# A request without an answer fails after this time, and its connection is closed. It must be short,
# because reads wait while a commit is under way, and the group removes a member that does not read
# for too long. And the connection may be dead: a way that forgets idle connections tells nobody.
# JoinGroup has a longer limit of its own.
SOCKET_TIMEOUT_MS = 5_000
# As with aiokafka. librdkafka's default is 30 s.
CONNECT_TIMEOUT_MS = 10_000
# 0 turns librdkafka's log off. Otherwise librdkafka would write its lines to standard error, past
# our log. It could also write to a Python logger, but then confluent-kafka 2.16 aborts the process
# (`CallState_get: cs != NULL`). Errors that matter also arrive by `error_cb`.
LOG_LEVEL = 0
# How long a broker without records may wait before it answers. librdkafka asks for all partitions
# of a broker in one request, and any record ends the wait, so the wait adds no latency.
FETCH_WAIT_MS = 500
# How much librdkafka reads ahead: so many records of each partition, and so many KiB of all
# partitions together. This amount is enough for the highest rate measured (some 5,000 references a
# second), and takes little memory even if each message has a megabyte.
AHEAD_RECORDS = 1_000
AHEAD_KIB = 16 << 10
# When librdkafka has read enough of a partition ahead, it pauses the fetches of this partition for
# this long. librdkafka's default of a second is so long that the pipeline would run out of records.
AHEAD_LOOK_MS = 5
OLDEST = (2, 16)
MARK = b"CGMDv2:"
# If a pattern selects the topics: the time between two looks which topics match.
LOOK_S = METADATA_MAX_AGE_MS / 1000
# The deadline of such a look. It is short, because no read is made meanwhile. A broker that is up
# answers within milliseconds.
ANSWER_S = 1.0
# Kafka's own topics. Like aiokafka, we leave them out even if they match the pattern.
INTERNAL = {"__consumer_offsets", "__transaction_state"}


def member_options(
    settings: config.Kafka,
    login: dict[str, Any],
    poll_ms: int,
    on_error: Callable[[Any], None],
) -> dict[str, Any]:
    """`login`: the options that say who we are. `poll_ms`: if a member has not read for this time,
    the group removes it.
    """
    options = _connection(settings) | login
    return {name: value for name, value in options.items() if value is not None} | {
        "group.id": settings.group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",  # `Places` chooses the new position, and logs it
        "isolation.level": settings.isolation,
        "enable.partition.eof": True,
        "max.poll.interval.ms": poll_ms,
        "topic.metadata.refresh.interval.ms": METADATA_MAX_AGE_MS,
        "fetch.wait.max.ms": settings.fetch_wait_ms or FETCH_WAIT_MS,
        "queued.min.messages": AHEAD_RECORDS,
        "queued.max.messages.kbytes": AHEAD_KIB,
        "fetch.queue.backoff.ms": AHEAD_LOOK_MS,
        "error_cb": on_error,
        **_protocol(settings),
        **({"group.instance.id": instance_id} if (instance_id := instance_of(settings)) else {}),
        **({"client.rack": settings.client_rack} if settings.client_rack else {}),
    }


def described(metadata: bytes) -> GroupMember:
    """Decode the membership from the bytes that librdkafka hands to its own producers. The bytes
    are a mark, the generation, and some texts; each text ends with a zero byte.
    """
    mark, generation = metadata[: len(MARK)], metadata[len(MARK) :][:4]
    if mark != MARK:
        raise usage(
            f"this release of confluent-kafka tells of its membership as {mark!r}; "
            'set kafka.client = "aiokafka"'
        )
    group, member_id, rest = metadata[len(MARK) + 4 :].split(b"\0", 2)
    # If the member has no instance id, the rest is a byte 1. Otherwise the rest is a byte 0, the
    # id, and the zero byte that ends the id.
    instance_id = None if rest == b"\1" else rest[1:-1].decode()
    number = int.from_bytes(generation, sys.byteorder, signed=True)
    return GroupMember(group.decode(), number, member_id.decode(), instance_id)


def _connection(settings: config.Kafka) -> dict[str, Any]:
    """The options that every client of librdkafka has in common."""
    return {
        "bootstrap.servers": settings.bootstrap_servers,
        "client.id": "penstock",
        "log_level": LOG_LEVEL,
        "log.connection.close": False,
        "allow.auto.create.topics": False,
        "coordinator.query.interval.ms": COORDINATOR_MS,
        "socket.timeout.ms": SOCKET_TIMEOUT_MS,
        "socket.connection.setup.timeout.ms": CONNECT_TIMEOUT_MS,
        "socket.keepalive.enable": True,
        "connections.max.idle.ms": settings.idle_ms,
        # As with aiokafka, a broker that comes back is found within a second.
        "reconnect.backoff.max.ms": 1_000,
    }


def _protocol(settings: config.Kafka) -> dict[str, Any]:
    """The options of the group's protocol. With the protocol "consumer" the broker decides about
    session, heartbeat and assignor, so librdkafka refuses options for them.
    """
    if settings.group_protocol == "consumer":
        check_release(version("confluent-kafka"))
        return {"group.protocol": "consumer"}
    return {
        "session.timeout.ms": settings.session_ms,
        "heartbeat.interval.ms": settings.heartbeat_ms,
        "partition.assignment.strategy": "range",
    }


def check_release(release: str) -> None:
    """Raises `Fatal` for a release of confluent-kafka before 2.16, because in a group with the
    protocol `consumer` such a release stands still for minutes.
    """
    if tuple(map(int, release.split(".")[:2])) < OLDEST:
        raise usage(
            'kafka.group_protocol = "consumer" needs confluent-kafka 2.16 or newer, here is '
            f"{release}; pip install -U confluent-kafka"
        )


class Subscription:
    """Tells which topics librdkafka reads: those that are configured, or those that match the
    pattern now.

    As with aiokafka, the pattern is a regular expression of Python. librdkafka and the broker each
    have another syntax, so we cannot pass them the pattern. Instead we look again and again which
    topics match, and subscribe to them by their names.
    """

    def __init__(self, settings: config.Kafka, now_s: Callable[[], float] = time.monotonic) -> None:
        self.topics = list(settings.inputs)
        self._matches = re.compile(settings.input_pattern).match if settings.input_pattern else None
        self._now_s = now_s
        self._looked_s: float | None = None

    def changed(self, consumer: Any) -> bool:
        """Look which topics match now. Returns True if they are not the same as before. Without a
        pattern the result is always False.
        """
        if self._matches is None:
            return False
        now_s = self._now_s()
        if self._looked_s is not None and now_s - self._looked_s < LOOK_S:
            return False
        self._looked_s = now_s
        try:
            known = consumer.list_topics(timeout=ANSWER_S).topics
        except KafkaException:
            return False  # the broker is unreachable, and the next read reports it
        topics = sorted(set(filter(self._matches, known)) - INTERNAL)
        if not topics or topics == self.topics:
            return False
        self.topics = topics
        return True


# How soon a password that was written anew is handed over.
REREAD_S: Final = 1.0
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
        if self._settings.sasl_password_file is None or self._now_s() < self._looked_s + REREAD_S:
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
