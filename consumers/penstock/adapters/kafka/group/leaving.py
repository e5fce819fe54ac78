"""Leaves a group on behalf of a member that has an instance id and stops for good or is dead.

Rule: the request names the member by its instance id, so the caller need not know the id that the
broker gave to the member. The group moves the member's partitions at once, and not only after the
member's session. Owner: the source that stops, and the supervisor of a dead process.
"""

import logging
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import CoordinationType

from penstock import config
from penstock.adapters.kafka.client import LEAVE_S, answered_within, check_code, connection, opened
from penstock.adapters.kafka.inside.handles import client_of
from penstock.adapters.kafka.requests import LeaveGroup
from penstock.errors import PenstockError

log = logging.getLogger(__name__)

# This answer means that the member is no longer in the group. That is what we want.
UNKNOWN_MEMBER_ID: Final = 25


async def leave_at_last(settings: config.Kafka, instance_id: str) -> None:
    """Call this for a member that stops. If the request fails, only a warning is logged: the group
    notices after the session that the member is gone.
    """
    try:
        await leave_for(settings, instance_id, LEAVE_S)
    except PenstockError as error:
        log.warning("the place in group %s is kept for its session: %s", settings.group, error)


async def leave_for(settings: config.Kafka, instance_id: str, seconds: float) -> None:
    """Raises `Unreachable` after `seconds` without an answer, or another error of ours."""
    what = f"the leaving of {instance_id} from group {settings.group}"
    admin = AIOKafkaAdminClient(**connection(settings))
    async with answered_within(what, seconds), opened(admin, settings, what):
        client = client_of(admin)
        node = await client.coordinator_lookup(CoordinationType.GROUP, settings.group)
        answer = await client.send(node, LeaveGroup(settings.group, instance_id))
        check_code(answer.error_code)
        for *_, code in answer.members:
            check_code(0 if code == UNKNOWN_MEMBER_ID else code)
