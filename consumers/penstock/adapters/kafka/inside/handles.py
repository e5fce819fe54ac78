"""Reads private fields of aiokafka's consumers, producers and admin clients.

Rule: nothing is changed here. There is no public way to send a request of our own through a
client's connections, to see the ends that the last answers gave, to learn a consumer's generation,
or to learn why a transaction ended.
"""

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient

from penstock.adapters.kafka.group.membership import GroupMember


def client_of(one: AIOKafkaConsumer | AIOKafkaAdminClient) -> AIOKafkaClient:
    """The client's connections to the brokers, and its metadata of the cluster."""
    return one._client


def state_of(consumer: AIOKafkaConsumer, where: TopicPartition) -> Any:
    """The position and the known ends of a partition; None if the consumer does not have the
    partition.
    """
    subscription = consumer._subscription.subscription
    if subscription is None or subscription.assignment is None:
        return None
    return subscription.assignment.state_value(where)


def generation_of(consumer: AIOKafkaConsumer) -> int | None:
    """The generation of the group in which the consumer is a member. None: the group has expelled
    the consumer, and the consumer has not joined again.
    """
    generation: int = consumer._coordinator.generation
    return generation if generation >= 0 else None


def member_of(consumer: AIOKafkaConsumer, group: str, instance_id: str | None) -> GroupMember:
    """Who the consumer is to the group now. While it has not joined, its generation is below 0."""
    coordinator = consumer._coordinator
    return GroupMember(group, coordinator.generation, coordinator.member_id, instance_id)


def transaction_end_of(producer: AIOKafkaProducer) -> asyncio.Future[Any] | None:
    """The future of the transaction's end, which has the reason if the transaction fails. None: the
    producer has no transactions.
    """
    transactions = producer._txn_manager
    return None if transactions is None else transactions.wait_for_transaction_end()
