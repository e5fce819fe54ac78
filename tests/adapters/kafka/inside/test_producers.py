"""How often a producer asks for a leader."""

import asyncio

from aiokafka import TopicPartition

from penstock import config
from penstock.adapters.kafka.inside.producers import STALE_S, give_up, producer_of, seen
from penstock.tools.simulation.virtual_time import virtual_time


@virtual_time
async def test_a_leader_that_is_not_known_is_asked_for_after_a_pause() -> None:
    producer = producer_of(config.Kafka(), enable_idempotence=True)
    producer._txn_manager.set_pid_and_epoch(1, 0)
    asked = 0

    def force_metadata_update() -> asyncio.Future[bool]:
        """The broker knows nothing new, at once."""
        nonlocal asked
        asked += 1
        updated = asyncio.get_running_loop().create_future()
        updated.set_result(True)
        return updated

    producer.client.force_metadata_update = force_metadata_update
    batch = producer.create_batch()
    batch.append(timestamp=1, key=None, value=b"row")
    place = TopicPartition("predictions", 0)
    delivered = await producer._message_accumulator.add_batch(batch, place, 1.0)
    delivered.add_done_callback(seen)
    await producer._sender.start()
    await asyncio.sleep(2.0)
    await give_up(producer)
    assert 2.0 / STALE_S / 3 <= asked <= 2.0 / STALE_S + 1
