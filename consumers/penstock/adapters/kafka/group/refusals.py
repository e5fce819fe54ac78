"""What a person must do if the group's coordinator refuses this member for good.

Rule: by the codes of Kafka's protocol, so that both clients say the same. All of them are about the
configuration, of this worker or of the group: exit code 2. Owner: the clients.
"""

from collections.abc import Mapping
from typing import Final

from penstock.errors import EXIT_USAGE, Fatal

INCONSISTENT_GROUP_PROTOCOL: Final = 23
INVALID_SESSION_TIMEOUT: Final = 26

_SAID: Final[Mapping[int, str]] = {
    INCONSISTENT_GROUP_PROTOCOL: (
        "the group's members share no way of assigning partitions with this worker, and the broker "
        "will refuse it for as long as they run.\n"
        "Stop all members of kafka.group, then start them with one kafka.client, "
        "kafka.group_protocol and version; or give this worker a kafka.group of its own."
    ),
    INVALID_SESSION_TIMEOUT: (
        "the broker allows no such session.\n"
        "Set kafka.session_ms between its group.min.session.timeout.ms and "
        "group.max.session.timeout.ms."
    ),
}


def refusal(code: int) -> Fatal | None:
    """None: the code says nothing that lasts."""
    said = _SAID.get(code)
    return None if said is None else Fatal(f"error {code}: {said}", exit_code=EXIT_USAGE)
