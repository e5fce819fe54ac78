"""What a person must do if the group's coordinator refuses this member for good.

Rule: by the codes of Kafka's protocol, so that both clients say the same. All of them are about the
configuration, of this worker or of the group: exit code 2. Owner: the clients.
"""

from collections.abc import Mapping
from typing import Final

from penstock.errors import Fatal, usage

INCONSISTENT_GROUP_PROTOCOL: Final = 23
INVALID_SESSION_TIMEOUT: Final = 26
GROUP_ID_NOT_FOUND: Final = 69
FENCED_INSTANCE_ID: Final = 82
UNRELEASED_INSTANCE_ID: Final = 111

_SAID: Final[Mapping[int, str]] = {
    INCONSISTENT_GROUP_PROTOCOL: (
        "the group's members share no way of assigning partitions with this worker, and the broker "
        "will refuse it for as long as they run.\n"
        "Stop all members of kafka.group, then start them with one kafka.client, "
        "kafka.group_protocol and version; or give this worker a kafka.group of its own."
    ),
    # Said of a group of the other protocol, too.
    GROUP_ID_NOT_FOUND: (
        'the group is none of kafka.group_protocol = "consumer": it has members of "classic", and '
        "the broker's group.consumer.migration.policy or their way of assigning does not let it "
        "change over while they run.\n"
        "Stop all members of kafka.group, then start them with one kafka.group_protocol; or give "
        "this worker a kafka.group of its own."
    ),
    INVALID_SESSION_TIMEOUT: (
        "the broker allows no such session.\n"
        "Set kafka.session_ms between its group.min.session.timeout.ms and "
        "group.max.session.timeout.ms."
    ),
    FENCED_INSTANCE_ID: (
        "another worker has joined the group under the kafka.instance_id of this one, and has its "
        "partitions now.\n"
        "Nothing is lost. Give each worker an id of its own, as by {hostname} in it."
    ),
}


LASTING: Final = frozenset(_SAID)


def refusal(code: int) -> Fatal:
    """Of a code that lasts."""
    return usage(f"error {code}: {_SAID[code]}")
