"""Faust's Kafka transport with three settings that Faust keeps to itself.

Rule: nothing else of it is changed. The producer is idempotent: a batch that fails leaves no hole
with later ones behind it, on which the knowledge of repeats rests. A question for records waits
20 ms instead of 1.5 s: that long, records of one partition waited for another's. Whether records of
open and of aborted transactions are read is what the application says.
"""

from collections.abc import Mapping
from typing import Any

import faust
from faust.transport.drivers import aiokafka as driver

# What `kafka.fetch_wait_ms` says of the worker's own consumer.
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
