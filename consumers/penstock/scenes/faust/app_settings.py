"""The settings of the Faust application, and Faust's Kafka transport with what it does not offer.

Rule: Faust creates no topic, opens no port and keeps no file. The transport is changed in four
places. First, the producer is idempotent, so that no later records are written if a batch
fails: repeats are recognised by their positions, so records must not change their order. Second,
the broker may hold a fetch for at most 20 ms. With Faust's 1.5 s, the records of one partition
would wait 1.5 s for the records of another. Third, the application chooses whether records of open
and aborted transactions are read. Fourth, the producer sends a record again whose time its topic
does not take, and what is about the brokers, as our own producers do. Owner: `app`.
"""

from collections.abc import Mapping
from typing import Any

import faust
from faust.auth import OAuthCredentials, SSLCredentials
from faust.transport.drivers import aiokafka as driver

from penstock import config
from penstock.adapters.kafka.client import connection
from penstock.adapters.kafka.inside.refusals import mend_refusals


def app_settings(cfg: config.Config) -> dict[str, Any]:
    servers = cfg.kafka.bootstrap_servers.split(",")
    return {
        "broker": ";".join(f"kafka://{server.strip()}" for server in servers),
        "broker_credentials": _credentials(cfg.kafka),
        "broker_client_id": "penstock-scenes",
        # When a worker has been dead for this many seconds, other workers take over its sites.
        "broker_session_timeout": 10.0,
        "broker_heartbeat_interval": 2.0,
        "consumer_connections_max_idle_ms": cfg.kafka.idle_ms,
        "producer_connections_max_idle_ms": cfg.kafka.idle_ms,
        # Offsets are committed this often, so a crash repeats at most the records of this time.
        # Repeats are recognised by their ids.
        "broker_commit_interval": 0.5,
        "consumer_auto_offset_reset": "earliest",
        "processing_guarantee": "at_least_once",
        "producer_linger": 0,
        # Faust's default is 16 KiB, but during a backlog the state of a site is larger.
        "producer_max_batch_size": 1 << 20,
        "store": "memory://",
        "table_standby_replicas": 0,
        "stream_recovery_delay": 0.0,
        "stream_wait_empty": False,
        "topic_allow_declare": False,
        "topic_disable_leader": True,
        "web_enabled": False,
        "loghandlers": [],
    }


def _credentials(kafka: config.Kafka) -> Any:
    arguments = connection(kafka)  # from now on each connection knows its mechanism itself
    identity = arguments.get("sasl_oauth_token_provider")
    if identity is None:
        return None
    if identity.mechanism is None:
        return SSLCredentials(identity.tls)
    return OAuthCredentials(oauth_cb=identity, ssl_context=identity.tls)


# The default of `kafka.fetch_wait_ms`, which the worker's own consumer uses.
FETCH_WAIT_MS = 20


class Producer(driver.Producer):
    def _settings_extra(self) -> Mapping[str, Any]:
        return {"acks": "all", "enable_idempotence": True}

    def _new_producer(self, transactional_id: str | None = None) -> Any:
        producer = super()._new_producer(transactional_id)
        mend_refusals(producer)
        return producer


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
