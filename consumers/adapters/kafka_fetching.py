"""How long a broker may keep aiokafka's question for records.

Rule: long while the question names every partition that we read, as any record of them ends it;
short while it leaves one out (its records wait to be taken, or it is paused), as that one is asked
for only when the broker has answered for the others. aiokafka has one figure for both, and the
short one would cost an idle worker fifty questions a second. Owner: the source, after its start.
"""

from typing import Any

from aiokafka import AIOKafkaConsumer

# aiokafka's own figure (`fetch_max_wait_ms`), and librdkafka's.
WHOLE_MS = 500
# What a partition that was left out waits at most.
PART_MS = 20


def ask_patiently(consumer: AIOKafkaConsumer) -> None:
    """aiokafka decides what to ask for in one function, and reads the figure there."""
    fetcher = consumer._fetcher
    decide = fetcher._get_actions_per_node

    def actions(assignment: Any) -> Any:
        leaves_out = fetcher._records or any(
            assignment.state_value(where).paused for where in assignment.tps
        )
        fetcher._fetch_max_wait_ms = PART_MS if leaves_out else WHOLE_MS
        return decide(assignment)

    fetcher._get_actions_per_node = actions
