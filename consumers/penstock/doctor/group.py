"""What the group costs, and who has this worker's place, where the configuration asks for such."""

from penstock import config
from penstock.adapters.kafka.committed_positions import GroupPositions
from penstock.adapters.kafka.group.instance import instance_of
from penstock.adapters.kafka.group.lag import GroupView
from penstock.doctor.finding import Finding, hurried

# Above it a crash costs more than by the protocol "classic" and its default.
LONG_SESSION_MS = 10_000
# Behind the name in a member's id: a dash and a UUID.
UUID_LENGTH = 37


async def look_at_group(cfg: config.Config) -> list[Finding]:
    kafka = hurried(cfg.kafka)
    if kafka.group_protocol == "consumer":
        return await _terms(kafka)
    name = instance_of(kafka)
    return [] if name is None else [await _place(kafka, name)]


async def _terms(kafka: config.Kafka) -> list[Finding]:
    positions = GroupPositions(kafka)
    try:
        await positions.start()
        terms = await positions.terms()
    finally:
        await positions.stop()
    if terms is None:
        said = "the broker does not tell its group.consumer.* settings, so nobody knows what a "
        return [Finding("group", "mind", f"{said}crash costs: by its defaults, 45 s")]
    is_long = terms.session_ms > LONG_SESSION_MS
    return [Finding("group", "mind" if is_long else "ok", str(terms))]


async def _place(kafka: config.Kafka, name: str) -> Finding:
    view = GroupView(kafka)
    try:
        placed = await view.partitions()
    finally:
        await view.stop()
    hosts = {one.host for one in placed if one.owner and one.owner[:-UUID_LENGTH] == name}
    if not hosts:
        return Finding("group", "ok", f"the place {name} (kafka.instance_id) has no partitions now")
    said = f"the place {name} (kafka.instance_id) is a worker's at {', '.join(map(str, hosts))}"
    return Finding("group", "ok", f"{said}; one more under this name would end that one")
