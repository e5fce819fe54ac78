"""Some of Kafka's requests, in versions that aiokafka does not have, by Kafka's published schemas;
we send no tagged fields.
"""

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any, Final

from aiokafka.protocol.api import Request, RequestStruct, Response, ResponseHeader_v0
from aiokafka.protocol.commit import OffsetCommitResponse_v3
from aiokafka.protocol.group import HeartbeatResponse_v1
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactBytes,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)

NO_EPOCH: Final = -1
STRING: Final = String("utf-8")
TEXT: Final = CompactString("utf-8")
TAGS: Final = ("tags", TaggedFields)
_NUMBERS: Final = (
    "topics",
    CompactArray(("name", TEXT), ("partitions", CompactArray(Int32)), TAGS),
)
_POSITION: Final = (
    ("partition", Int32),
    ("offset", Int64),
    ("leader_epoch", Int32),
    ("metadata", TEXT),
)
_MEMBER: Final = (
    ("group", STRING),
    ("generation_id", Int32),
    ("member_id", STRING),
    ("group_instance_id", STRING),
)


def _by_topic(*of_partition: tuple[str, Any]) -> tuple[str, CompactArray]:
    partitions = CompactArray(*of_partition, TAGS)
    return "topics", CompactArray(("name", TEXT), ("partitions", partitions), TAGS)


class _Uuid:
    """Kafka's type `uuid`, which aiokafka does not have."""

    encode = staticmethod(bytes)

    @staticmethod
    def decode(data: BytesIO) -> bytes:
        return data.read(16)

    repr = staticmethod(bytes.hex)


NO_ID: Final = bytes(16)
API_VERSIONS: Final = 18


class _OneVersion(Request[RequestStruct]):  # type: ignore[misc]
    """The base class of a request in one version. A subclass gives two schemas: `asks` for the
    request and `answers` for the answer. It passes the request's fields in the order of `asks`.
    """

    API_KEY = 0

    def __init_subclass__(
        cls, *, key: int, version: int, asks: Schema, answers: Schema, has_tags: bool = True
    ) -> None:
        cls.API_KEY = key
        super().__init_subclass__()
        known: dict[str, Any] = {"API_KEY": key, "API_VERSION": version, "__module__": __name__}
        answer = type(f"{cls.__name__}Answer", (Response,), known | {"SCHEMA": answers})
        known |= {"SCHEMA": asks, "RESPONSE_TYPE": answer, "FLEXIBLE_VERSION": has_tags}
        if key == API_VERSIONS:
            # Its answer is read before the versions are known, so its head never has tags.
            known["parse_response_header"] = lambda _, data: ResponseHeader_v0.decode(data)
        cls._CLASSES = (type(f"{cls.__name__}Struct", (RequestStruct,), known),)

    def __init__(self, *fields: Any) -> None:
        self._fields = fields

    def build(self, request_struct_class: type[RequestStruct]) -> RequestStruct:
        return request_struct_class(*self._fields)


class DecidedOffsets(
    _OneVersion,
    key=9,
    version=7,
    asks=Schema(
        ("group", TEXT),
        _NUMBERS,
        ("require_stable", Boolean),
        TAGS,
    ),
    answers=Schema(
        ("throttle_time_ms", Int32),
        _by_topic(*_POSITION, ("error_code", Int16)),
        ("error_code", Int16),
        TAGS,
    ),
):
    """Asks for the group's positions. The answer has error 88 for a position that an open
    transaction may still move.
    """

    def __init__(self, group: str, topics: Sequence[tuple[str, list[int]]]) -> None:
        super().__init__(group, [(name, numbers, {}) for name, numbers in topics], True, {})

    @staticmethod
    def plain(answer: Any) -> list[tuple[str, list[tuple[int, int, str | None, int]]]]:
        """For each topic: the number, offset, metadata and error code of each partition, in the
        form that aiokafka's older versions have.
        """
        return [
            (
                name,
                [(number, at, metadata, code) for number, at, _, metadata, code, _ in partitions],
            )
            for name, partitions, _ in answer.topics
        ]


class Features(
    _OneVersion,
    key=API_VERSIONS,
    version=4,
    asks=Schema(("name", TEXT), ("version", TEXT), TAGS),
    answers=Schema(
        ("error_code", Int16),
        ("apis", CompactArray(("key", Int16), ("least", Int16), ("most", Int16), TAGS)),
        ("throttle_time_ms", Int32),
        TAGS,
    ),
):
    """Asks for the features of the cluster, which stand in a tagged field of the answer."""

    _FINALIZED = 2
    _LEVELS = CompactArray(("name", TEXT), ("most", Int16), ("least", Int16), TAGS)

    def __init__(self) -> None:
        super().__init__("penstock", "1", {})

    @classmethod
    def levels(cls, answer: Any) -> dict[str, int]:
        """The level of each feature that the whole cluster uses."""
        levels = cls._LEVELS.decode(BytesIO(answer.tags.get(cls._FINALIZED, b"\1")))
        return {name: most for name, most, *_ in levels}


_PRODUCE_ASKS: Final = Schema(
    ("transactional_id", TEXT),
    ("acks", Int16),
    ("timeout_ms", Int32),
    _by_topic(("partition", Int32), ("records", CompactBytes)),
    TAGS,
)
_PRODUCE_ANSWERS: Final = Schema(
    _by_topic(
        ("partition", Int32),
        ("error_code", Int16),
        ("offset", Int64),
        ("time_ms", Int64),
        ("first_offset", Int64),
        ("record_errors", CompactArray(("index", Int32), ("message", TEXT), TAGS)),
        ("message", TEXT),
    ),
    ("throttle_time_ms", Int32),
    TAGS,
)


class Produce(_OneVersion, key=0, version=9, asks=_PRODUCE_ASKS, answers=_PRODUCE_ANSWERS):
    """Writes one batch to each partition, which all in-sync replicas have when the answer comes."""

    def __init__(
        self, transactional_id: str, timeout_ms: int, topics: dict[str, list[tuple[int, bytes]]]
    ) -> None:
        placed: list[Any] = [
            (name, [(number, data, {}) for number, data in partitions], {})
            for name, partitions in topics.items()
        ]
        super().__init__(transactional_id, -1, timeout_ms, placed, {})

    @staticmethod
    def plain(answer: Any) -> Iterator[tuple[str, int, int, list[Any]]]:
        """For each partition: its topic, number and error code, and the rest of the answer about it
        in the form that aiokafka's older versions have.
        """
        for name, partitions, _ in answer.topics:
            for number, code, *rest, errors, words, _ in partitions:
                refusals = [(index, message) for index, message, _ in errors or ()]
                yield name, number, code, [*rest, refusals, words]


class AddingProduce(Produce, key=0, version=12, asks=_PRODUCE_ASKS, answers=_PRODUCE_ANSWERS):
    """Adds the partitions to the transaction, too."""


_OFFSETS_ASKS: Final = Schema(
    ("transactional_id", TEXT),
    ("group", TEXT),
    ("producer_id", Int64),
    ("producer_epoch", Int16),
    ("generation", Int32),
    ("member_id", TEXT),
    ("instance_id", TEXT),
    _by_topic(*_POSITION),
    TAGS,
)
_OFFSETS_ANSWERS: Final = Schema(
    ("throttle_time_ms", Int32),
    _by_topic(("partition", Int32), ("error_code", Int16)),
    TAGS,
)


class MembersOffsets(_OneVersion, key=28, version=3, asks=_OFFSETS_ASKS, answers=_OFFSETS_ANSWERS):
    """Writes a group's positions in a transaction, and names the member that makes the transaction.
    `topics`: for each topic, its partitions with offset and metadata.
    """

    def __init__(
        self,
        producer: tuple[str, str, int, int],
        member: tuple[int, str, str | None],
        topics: dict[str, list[tuple[int, int, str]]],
    ) -> None:
        """`producer`: the producer's transactional id, the group, the producer's id, and its
        epoch.
        """
        offsets: list[Any] = [
            (
                name,
                [(number, at, NO_EPOCH, metadata, {}) for number, at, metadata in partitions],
                {},
            )
            for name, partitions in topics.items()
        ]
        super().__init__(*producer, *member, offsets, {})


class AddingOffsets(
    MembersOffsets, key=28, version=5, asks=_OFFSETS_ASKS, answers=_OFFSETS_ANSWERS
):
    """Adds the group to the transaction, too."""


class EndAndBump(
    _OneVersion,
    key=26,
    version=5,
    asks=Schema(
        ("transactional_id", TEXT),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("commits", Boolean),
        TAGS,
    ),
    answers=Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        TAGS,
    ),
):
    """Ends a transaction. The answer has the producer's id and epoch of the next transaction."""

    def __init__(self, transactional_id: str, id: int, epoch: int, commits: bool) -> None:
        super().__init__(transactional_id, id, epoch, commits, {})


class TopicIds(
    _OneVersion,
    key=3,
    version=10,
    asks=Schema(
        ("topics", CompactArray(("id", _Uuid), ("name", TEXT), TAGS)),
        ("creates", Boolean),
        ("cluster_rights", Boolean),
        ("topic_rights", Boolean),
        TAGS,
    ),
    answers=Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(("id", Int32), ("host", TEXT), ("port", Int32), ("rack", TEXT), TAGS),
        ),
        ("cluster_id", TEXT),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", TEXT),
                ("id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("in_sync", CompactArray(Int32)),
                        ("offline", CompactArray(Int32)),
                        TAGS,
                    ),
                ),
                ("rights", Int32),
                TAGS,
            ),
        ),
        ("rights", Int32),
        TAGS,
    ),
):
    """Asks for the ids of topics. A topic that is deleted and made again has another id."""

    def __init__(self, topics: Sequence[str]) -> None:
        super().__init__([(NO_ID, name, {}) for name in topics], False, False, False, {})

    @staticmethod
    def plain(answer: Any) -> dict[str, bytes]:
        """The id of each topic that exists and whose broker knows ids (Kafka 2.8 or newer)."""
        return {name: id for code, name, id, *_ in answer.topics if code == 0 and id != NO_ID}


class ListTransactions(
    _OneVersion,
    key=66,
    version=0,
    asks=Schema(("states", CompactArray(TEXT)), ("producers", CompactArray(Int64)), TAGS),
    answers=Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("unknown_states", CompactArray(TEXT)),
        (
            "transactions",
            CompactArray(("transactional_id", TEXT), ("producer_id", Int64), ("state", TEXT), TAGS),
        ),
        TAGS,
    ),
):
    """Asks a broker for the transactions in one of these states that it coordinates."""

    def __init__(self, *states: str) -> None:
        super().__init__(list(states), [], {})


class DescribeTransactions(
    _OneVersion,
    key=65,
    version=0,
    asks=Schema(("transactional_ids", CompactArray(TEXT)), TAGS),
    answers=Schema(
        ("throttle_time_ms", Int32),
        (
            "transactions",
            CompactArray(
                ("error_code", Int16),
                ("transactional_id", TEXT),
                ("state", TEXT),
                ("timeout_ms", Int32),
                ("began_ms", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                _NUMBERS,
                TAGS,
            ),
        ),
        TAGS,
    ),
):
    def __init__(self, transactional_ids: list[str]) -> None:
        super().__init__(transactional_ids, {})


class NamedHeartbeat(
    _OneVersion,
    key=12,
    version=3,
    asks=Schema(*_MEMBER),
    answers=HeartbeatResponse_v1.SCHEMA,
    has_tags=False,
):
    """A heartbeat, in the oldest version that carries the instance id. `NamedCommit` and
    `LeaveGroup` are also in the oldest version that carries it.
    """


class NamedCommit(
    _OneVersion,
    key=8,
    version=7,
    asks=Schema(
        *_MEMBER,
        (
            "topics",
            Array(
                ("topic", STRING),
                (
                    "partitions",
                    Array(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", STRING),
                    ),
                ),
            ),
        ),
    ),
    answers=OffsetCommitResponse_v3.SCHEMA,
    has_tags=False,
):
    pass


class LeaveGroup(
    _OneVersion,
    key=13,
    version=3,
    asks=Schema(
        ("group", STRING),
        ("members", Array(("member_id", STRING), ("group_instance_id", STRING))),
    ),
    answers=Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "members",
            Array(("member_id", STRING), ("group_instance_id", STRING), ("error_code", Int16)),
        ),
    ),
    has_tags=False,
):
    def __init__(self, group: str, instance_id: str) -> None:
        super().__init__(group, [("", instance_id)])
