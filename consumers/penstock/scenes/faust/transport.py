"""Faust's Kafka transport with three settings that Faust does not offer.

Rule: only these three are changed. First, the producer is idempotent: if a batch fails, no later
records may be written, because repeats are recognised by their positions. Second, the broker may
hold a fetch for at most 20 ms. With Faust's 1.5 s, the records of one partition would wait 1.5 s
for the records of another. Third, the application chooses whether records of open and aborted
transactions are read.
"""

from collections.abc import Mapping
from typing import Any

import faust
from faust.transport.drivers import aiokafka as driver

# The default of `kafka.fetch_wait_ms`, which the worker's own consumer uses.
FETCH_WAIT_MS = 20


class Producer(driver.Producer):
    def _settings_extra(self) -> Mapping[str, Any]:
        return {"acks": "all", "enable_idempotence": True}


class ConsumerThread(driver.AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        consumer._isolation_level = transport.app.isolation
        return consumer


class Consumer(driver.Consumer):
    def _new_consumer_thread(self) -> Any:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)


class Transport(driver.Transport):
    Consumer = Consumer
    Producer = Producer


class App(faust.App):
    isolation = "read_uncommitted"

    def _new_transport(self) -> Any:
        return Transport(self.conf.broker_consumer, self)

    def _new_producer_transport(self) -> Any:
        return Transport(self.conf.broker_producer, self)
