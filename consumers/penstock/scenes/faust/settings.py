"""The settings of the Faust application.

Rule: Faust creates no topic, opens no port and keeps no file. Owner: `app`.
"""

from typing import Any

from faust.auth import SASLCredentials, SSLCredentials

from penstock import config
from penstock.adapters.kafka.client import connection


def app_settings(cfg: config.Config) -> dict[str, Any]:
    servers = cfg.kafka.bootstrap_servers.split(",")
    return {
        "broker": ";".join(f"kafka://{server.strip()}" for server in servers),
        "broker_credentials": _credentials(cfg.kafka),
        "broker_client_id": "penstock-scenes",
        # This long after a worker has died, other workers take over its sites.
        "broker_session_timeout": 10.0,
        "broker_heartbeat_interval": 2.0,
        # A crash repeats at most the records of this time. Repeats are recognised by their ids.
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
    arguments = connection(kafka)
    context = arguments.get("ssl_context")
    if kafka.security_protocol.startswith("SASL"):
        return SASLCredentials(
            username=kafka.sasl_username,
            password=kafka.sasl_password,
            mechanism=arguments["sasl_mechanism"],
            ssl_context=context,
        )
    return None if context is None else SSLCredentials(context)
