"""What a broker says of itself: the requests that it knows, and its own settings.

Rule: a broker that does not tell is no error: managed clusters keep their settings to themselves.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.protocol.admin import ApiVersionRequest, DescribeConfigsRequest

from penstock import config
from penstock.adapters.kafka.client import connection, opened, within
from penstock.adapters.kafka.inside.consumers import client_of


class BrokerWords(NamedTuple):
    """`requests`: the numbers of those that it knows. `settings`: those that it tells us."""

    requests: frozenset[int]
    settings: Mapping[str, str]


async def broker_words(kafka: config.Kafka, names: Sequence[str]) -> BrokerWords:
    """Asks one broker, for these settings."""
    what = "a question about the broker"
    admin = AIOKafkaAdminClient(**connection(kafka))
    async with opened(admin, kafka, what), within(what, kafka.timeout_ms / 1000):
        client = client_of(admin)
        node = client.get_random_node()
        versions = await client.send(node, ApiVersionRequest())
        known = frozenset(key for key, *_ in versions.api_versions)
        resource = (ConfigResourceType.BROKER, str(node), list(names))
        settings: dict[str, str] = {}
        try:
            answer = await client.send(node, DescribeConfigsRequest([resource], False))
        except (kafka_errors.IncompatibleBrokerVersion, NotImplementedError):
            return BrokerWords(known, settings)
        for words in answer.to_object()["resources"]:
            for entry in () if words["error_code"] else words["config_entries"]:
                if entry["config_names"] in names and entry["config_value"] is not None:
                    settings[entry["config_names"]] = entry["config_value"]
        return BrokerWords(known, settings)
