"""Which unit an error of Kafka is about: one line for each error code of its protocol.

Rule: a refusal belongs to its unit, and only the brokers are waited for. Both clients are judged by
this table. The names are those of Kafka 4.1; aiokafka's own table ends at 72, so it gets the
missing codes here.
"""

from enum import Enum
from typing import Final, NamedTuple

from aiokafka import errors as kafka_errors


class RefusedUnit(Enum):
    """RECORD: the content of one record or batch; without it, the others are taken. TOPIC: the
    topic, as it is set up. RIGHTS: our credentials and ACLs. US: this member, producer or request.
    BROKER: the brokers, which may take the same request later.
    """

    RECORD = "record"
    TOPIC = "topic"
    RIGHTS = "rights"
    US = "us"
    BROKER = "broker"


RECORD, TOPIC, RIGHTS, US, BROKER = RefusedUnit

UNKNOWN_ERROR: Final = -1
INVALID_COMMIT_OFFSET_SIZE: Final = 28
INVALID_TIMESTAMP: Final = 32
TRANSACTION_ABORTABLE: Final = 120


class Code(NamedTuple):
    name: str
    about: RefusedUnit


CODES: Final = {
    -1: Code("UNKNOWN_SERVER_ERROR", BROKER),
    1: Code("OFFSET_OUT_OF_RANGE", US),
    2: Code("CORRUPT_MESSAGE", BROKER),
    3: Code("UNKNOWN_TOPIC_OR_PARTITION", BROKER),
    4: Code("INVALID_FETCH_SIZE", US),
    5: Code("LEADER_NOT_AVAILABLE", BROKER),
    6: Code("NOT_LEADER_OR_FOLLOWER", BROKER),
    7: Code("REQUEST_TIMED_OUT", BROKER),
    8: Code("BROKER_NOT_AVAILABLE", BROKER),
    9: Code("REPLICA_NOT_AVAILABLE", BROKER),
    10: Code("MESSAGE_TOO_LARGE", RECORD),
    11: Code("STALE_CONTROLLER_EPOCH", US),
    12: Code("OFFSET_METADATA_TOO_LARGE", US),
    13: Code("NETWORK_EXCEPTION", BROKER),
    14: Code("COORDINATOR_LOAD_IN_PROGRESS", BROKER),
    15: Code("COORDINATOR_NOT_AVAILABLE", BROKER),
    16: Code("NOT_COORDINATOR", BROKER),
    17: Code("INVALID_TOPIC_EXCEPTION", TOPIC),
    18: Code("RECORD_LIST_TOO_LARGE", RECORD),
    19: Code("NOT_ENOUGH_REPLICAS", BROKER),
    20: Code("NOT_ENOUGH_REPLICAS_AFTER_APPEND", BROKER),
    21: Code("INVALID_REQUIRED_ACKS", US),
    22: Code("ILLEGAL_GENERATION", US),
    23: Code("INCONSISTENT_GROUP_PROTOCOL", US),
    24: Code("INVALID_GROUP_ID", US),
    25: Code("UNKNOWN_MEMBER_ID", US),
    26: Code("INVALID_SESSION_TIMEOUT", US),
    27: Code("REBALANCE_IN_PROGRESS", BROKER),
    28: Code("INVALID_COMMIT_OFFSET_SIZE", US),
    29: Code("TOPIC_AUTHORIZATION_FAILED", RIGHTS),
    30: Code("GROUP_AUTHORIZATION_FAILED", RIGHTS),
    31: Code("CLUSTER_AUTHORIZATION_FAILED", RIGHTS),
    32: Code("INVALID_TIMESTAMP", RECORD),
    33: Code("UNSUPPORTED_SASL_MECHANISM", RIGHTS),
    34: Code("ILLEGAL_SASL_STATE", US),
    35: Code("UNSUPPORTED_VERSION", US),
    36: Code("TOPIC_ALREADY_EXISTS", US),
    37: Code("INVALID_PARTITIONS", US),
    38: Code("INVALID_REPLICATION_FACTOR", US),
    39: Code("INVALID_REPLICA_ASSIGNMENT", US),
    40: Code("INVALID_CONFIG", US),
    41: Code("NOT_CONTROLLER", BROKER),
    42: Code("INVALID_REQUEST", US),
    43: Code("UNSUPPORTED_FOR_MESSAGE_FORMAT", TOPIC),
    44: Code("POLICY_VIOLATION", TOPIC),
    45: Code("OUT_OF_ORDER_SEQUENCE_NUMBER", US),
    46: Code("DUPLICATE_SEQUENCE_NUMBER", US),
    47: Code("INVALID_PRODUCER_EPOCH", US),
    48: Code("INVALID_TXN_STATE", US),
    49: Code("INVALID_PRODUCER_ID_MAPPING", US),
    50: Code("INVALID_TRANSACTION_TIMEOUT", US),
    51: Code("CONCURRENT_TRANSACTIONS", BROKER),
    52: Code("TRANSACTION_COORDINATOR_FENCED", BROKER),
    53: Code("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", RIGHTS),
    54: Code("SECURITY_DISABLED", RIGHTS),
    55: Code("OPERATION_NOT_ATTEMPTED", US),
    56: Code("KAFKA_STORAGE_ERROR", BROKER),
    57: Code("LOG_DIR_NOT_FOUND", US),
    58: Code("SASL_AUTHENTICATION_FAILED", RIGHTS),
    59: Code("UNKNOWN_PRODUCER_ID", US),
    60: Code("REASSIGNMENT_IN_PROGRESS", US),
    61: Code("DELEGATION_TOKEN_AUTH_DISABLED", RIGHTS),
    62: Code("DELEGATION_TOKEN_NOT_FOUND", RIGHTS),
    63: Code("DELEGATION_TOKEN_OWNER_MISMATCH", RIGHTS),
    64: Code("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", RIGHTS),
    65: Code("DELEGATION_TOKEN_AUTHORIZATION_FAILED", RIGHTS),
    66: Code("DELEGATION_TOKEN_EXPIRED", RIGHTS),
    67: Code("INVALID_PRINCIPAL_TYPE", US),
    68: Code("NON_EMPTY_GROUP", US),
    69: Code("GROUP_ID_NOT_FOUND", US),
    70: Code("FETCH_SESSION_ID_NOT_FOUND", BROKER),
    71: Code("INVALID_FETCH_SESSION_EPOCH", BROKER),
    72: Code("LISTENER_NOT_FOUND", BROKER),
    73: Code("TOPIC_DELETION_DISABLED", US),
    74: Code("FENCED_LEADER_EPOCH", BROKER),
    75: Code("UNKNOWN_LEADER_EPOCH", BROKER),
    76: Code("UNSUPPORTED_COMPRESSION_TYPE", TOPIC),
    77: Code("STALE_BROKER_EPOCH", BROKER),
    78: Code("OFFSET_NOT_AVAILABLE", BROKER),
    79: Code("MEMBER_ID_REQUIRED", US),
    80: Code("PREFERRED_LEADER_NOT_AVAILABLE", BROKER),
    81: Code("GROUP_MAX_SIZE_REACHED", BROKER),
    82: Code("FENCED_INSTANCE_ID", US),
    83: Code("ELIGIBLE_LEADERS_NOT_AVAILABLE", BROKER),
    84: Code("ELECTION_NOT_NEEDED", BROKER),
    85: Code("NO_REASSIGNMENT_IN_PROGRESS", US),
    86: Code("GROUP_SUBSCRIBED_TO_TOPIC", US),
    87: Code("INVALID_RECORD", RECORD),
    88: Code("UNSTABLE_OFFSET_COMMIT", BROKER),
    89: Code("THROTTLING_QUOTA_EXCEEDED", BROKER),
    90: Code("PRODUCER_FENCED", US),
    91: Code("RESOURCE_NOT_FOUND", US),
    92: Code("DUPLICATE_RESOURCE", US),
    93: Code("UNACCEPTABLE_CREDENTIAL", US),
    94: Code("INCONSISTENT_VOTER_SET", US),
    95: Code("INVALID_UPDATE_VERSION", US),
    96: Code("FEATURE_UPDATE_FAILED", US),
    97: Code("PRINCIPAL_DESERIALIZATION_FAILURE", US),
    98: Code("SNAPSHOT_NOT_FOUND", US),
    99: Code("POSITION_OUT_OF_RANGE", US),
    100: Code("UNKNOWN_TOPIC_ID", BROKER),
    101: Code("DUPLICATE_BROKER_REGISTRATION", US),
    102: Code("BROKER_ID_NOT_REGISTERED", US),
    103: Code("INCONSISTENT_TOPIC_ID", BROKER),
    104: Code("INCONSISTENT_CLUSTER_ID", US),
    105: Code("TRANSACTIONAL_ID_NOT_FOUND", US),
    106: Code("FETCH_SESSION_TOPIC_ID_ERROR", BROKER),
    107: Code("INELIGIBLE_REPLICA", US),
    108: Code("NEW_LEADER_ELECTED", US),
    109: Code("OFFSET_MOVED_TO_TIERED_STORAGE", US),
    110: Code("FENCED_MEMBER_EPOCH", US),
    111: Code("UNRELEASED_INSTANCE_ID", BROKER),
    112: Code("UNSUPPORTED_ASSIGNOR", US),
    113: Code("STALE_MEMBER_EPOCH", US),
    114: Code("MISMATCHED_ENDPOINT_TYPE", US),
    115: Code("UNSUPPORTED_ENDPOINT_TYPE", US),
    116: Code("UNKNOWN_CONTROLLER_ID", BROKER),
    117: Code("UNKNOWN_SUBSCRIPTION_ID", US),
    118: Code("TELEMETRY_TOO_LARGE", US),
    119: Code("INVALID_REGISTRATION", US),
    120: Code("TRANSACTION_ABORTABLE", US),
    121: Code("INVALID_RECORD_STATE", US),
    122: Code("SHARE_SESSION_NOT_FOUND", BROKER),
    123: Code("INVALID_SHARE_SESSION_EPOCH", BROKER),
    124: Code("FENCED_STATE_EPOCH", US),
    125: Code("INVALID_VOTER_KEY", US),
    126: Code("DUPLICATE_VOTER", US),
    127: Code("VOTER_NOT_FOUND", US),
    128: Code("INVALID_REGULAR_EXPRESSION", US),
    129: Code("REBOOTSTRAP_REQUIRED", US),
    130: Code("STREAMS_INVALID_TOPOLOGY", US),
    131: Code("STREAMS_INVALID_TOPOLOGY_EPOCH", US),
    132: Code("STREAMS_TOPOLOGY_FENCED", US),
    133: Code("SHARE_SESSION_LIMIT_REACHED", BROKER),
}
# How to mend what a code says, if a setting mends it. Then the process ends with exit code 2.
MENDS: Final = {
    12: "Set offset.metadata.max.bytes of the brokers to 4096, its default, or more.",
    17: "Kafka does not take the name of this topic.",
    28: "Set max.message.bytes of __consumer_offsets to 1048588, its default, or more.",
    32: (
        "Compare message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic "
        "with the times of the records, and this machine's clock with that of the brokers."
    ),
    43: "The topic's message format is older than that of Kafka 0.11.",
    44: "A policy of the brokers forbids it.",
    50: "Set transaction.max.timeout.ms of the brokers to 30000 or more.",
    76: "The topic does not take output.compression.",
}


def about(code: int) -> RefusedUnit:
    """A code that is newer than the table may be anything. So it is waited for, like an error that
    the broker does not know itself.
    """
    return CODES[code].about if code in CODES else BROKER


def _known_to_aiokafka() -> None:
    for number, (name, unit) in CODES.items():
        if number not in kafka_errors.kafka_errors:
            fields = {"errno": number, "message": name, "retriable": unit is BROKER}
            kind = type(name, (kafka_errors.BrokerResponseError,), fields)
            kafka_errors.kafka_errors[number] = kind


_known_to_aiokafka()
