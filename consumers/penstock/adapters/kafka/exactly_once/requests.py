"""Kafka's requests about open transactions that aiokafka does not have, by the published schemas.

Rule: only what a request carries, and nothing of what it is for. All have tagged fields at the end
of each structure; we send none.
"""

from typing import Any, Final

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

TEXT: Final = CompactString("utf-8")
TAGS: Final = ("tags", TaggedFields)
NO_EPOCH: Final = -1


class _OffsetFetched(Response):  # type: ignore[misc]
    API_KEY = 9
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", TEXT),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", TEXT),
                        ("error_code", Int16),
                        TAGS,
                    ),
                ),
                TAGS,
            ),
        ),
        ("error_code", Int16),
        TAGS,
    )


class _OffsetFetch(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 9
    API_VERSION = 7
    RESPONSE_TYPE = _OffsetFetched
    SCHEMA = Schema(
        ("group", TEXT),
        ("topics", CompactArray(("name", TEXT), ("partitions", CompactArray(Int32)), TAGS)),
        ("require_stable", Boolean),
        TAGS,
    )


class DecidedOffsets(Request[_OffsetFetch]):  # type: ignore[misc]
    """The group's positions; error 88 for one that an open transaction may move."""

    API_KEY = 9

    def __init__(self, group: str, topics: list[tuple[str, list[int]]]) -> None:
        self._fields: tuple[Any, ...] = (
            group,
            [(name, numbers, {}) for name, numbers in topics],
            True,
            {},
        )

    def build(self, request_struct_class: type[_OffsetFetch]) -> _OffsetFetch:
        return request_struct_class(*self._fields)


def offsets_in(answer: Any) -> list[tuple[str, list[tuple[int, int, str | None, int]]]]:
    """By topic each partition's offset, metadata and error code, of an answer in either form."""
    if not isinstance(answer, _OffsetFetched):
        return list(answer.topics)
    return [
        (name, [(number, at, said, code) for number, at, _, said, code, _ in partitions])
        for name, partitions, _ in answer.topics
    ]


class _OffsetsCommitted(Response):  # type: ignore[misc]
    API_KEY = 28
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", TEXT),
                ("partitions", CompactArray(("partition", Int32), ("error_code", Int16), TAGS)),
                TAGS,
            ),
        ),
        TAGS,
    )

    @property
    def errors(self) -> list[tuple[str, list[tuple[int, int]]]]:
        """As aiokafka's handler reads them."""
        return [
            (name, [(number, code) for number, code, _ in partitions])
            for name, partitions, _ in self.topics
        ]


class _TxnOffsetCommit(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 28
    API_VERSION = 3
    RESPONSE_TYPE = _OffsetsCommitted
    SCHEMA = Schema(
        ("transactional_id", TEXT),
        ("group", TEXT),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("generation", Int32),
        ("member_id", TEXT),
        ("instance_id", TEXT),
        (
            "topics",
            CompactArray(
                ("name", TEXT),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", TEXT),
                        TAGS,
                    ),
                ),
                TAGS,
            ),
        ),
        TAGS,
    )


class MembersOffsets(Request[_TxnOffsetCommit]):  # type: ignore[misc]
    """Positions that go with a transaction, of a member of the group. `topics`: for each its
    partitions with offset and metadata.
    """

    API_KEY = 28

    def __init__(
        self,
        producer: tuple[str, str, int, int],
        member: tuple[int, str, str | None],
        topics: list[tuple[str, list[tuple[int, int, str]]]],
    ) -> None:
        """`producer`: its transactional id, the group, its id and epoch."""
        offsets: list[Any] = [
            (name, [(number, at, NO_EPOCH, said, {}) for number, at, said in partitions], {})
            for name, partitions in topics
        ]
        self._fields: tuple[Any, ...] = (*producer, *member, offsets, {})

    def build(self, request_struct_class: type[_TxnOffsetCommit]) -> _TxnOffsetCommit:
        return request_struct_class(*self._fields)


class _Listed(Response):  # type: ignore[misc]
    API_KEY = 66
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("unknown_states", CompactArray(TEXT)),
        (
            "transactions",
            CompactArray(("transactional_id", TEXT), ("producer_id", Int64), ("state", TEXT), TAGS),
        ),
        TAGS,
    )


class _List(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 66
    API_VERSION = 0
    RESPONSE_TYPE = _Listed
    SCHEMA = Schema(("states", CompactArray(TEXT)), ("producers", CompactArray(Int64)), TAGS)


class ListTransactions(Request[_List]):  # type: ignore[misc]
    """Those that a broker coordinates, in these states."""

    API_KEY = 66

    def __init__(self, *states: str) -> None:
        self._states = list(states)

    def build(self, request_struct_class: type[_List]) -> _List:
        return request_struct_class(self._states, [], {})


class _Described(Response):  # type: ignore[misc]
    API_KEY = 65
    API_VERSION = 0
    SCHEMA = Schema(
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
                ("topics", CompactArray(("name", TEXT), ("partitions", CompactArray(Int32)), TAGS)),
                TAGS,
            ),
        ),
        TAGS,
    )


class _Describe(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 65
    API_VERSION = 0
    RESPONSE_TYPE = _Described
    SCHEMA = Schema(("transactional_ids", CompactArray(TEXT)), TAGS)


class DescribeTransactions(Request[_Describe]):  # type: ignore[misc]
    API_KEY = 65

    def __init__(self, transactional_ids: list[str]) -> None:
        self._ids = transactional_ids

    def build(self, request_struct_class: type[_Describe]) -> _Describe:
        return request_struct_class(self._ids, {})
