"""Which topics librdkafka reads: those that are configured, or those that match a pattern now.

Rule: the pattern is a regular expression of Python, as with aiokafka; librdkafka and the broker
each have a syntax of their own. So we look again and again which topics match, and subscribe to
them by their names. Owner: the handle, on its thread.
"""

import re
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException

from penstock import config
from penstock.adapters.kafka.source import METADATA_MAX_AGE_MS

LOOK_S = METADATA_MAX_AGE_MS / 1000
# Short, because no read is made meanwhile. A broker that is up answers within milliseconds.
ANSWER_S = 1.0
# Kafka's own topics. Like aiokafka, we leave them out even if they match the pattern.
INTERNAL = {"__consumer_offsets", "__transaction_state"}


class Subscription:
    def __init__(self, settings: config.Kafka, now_s: Callable[[], float] = time.monotonic) -> None:
        self.topics = list(settings.inputs)
        self._matches = re.compile(settings.input_pattern).match if settings.input_pattern else None
        self._now_s = now_s
        self._looked_s: float | None = None

    def changed(self, consumer: Any) -> bool:
        """Look which topics match now. Returns True if other topics match than before, else False.
        Without a pattern the result is always False.
        """
        if self._matches is None:
            return False
        now_s = self._now_s()
        if self._looked_s is not None and now_s - self._looked_s < LOOK_S:
            return False
        self._looked_s = now_s
        try:
            known = consumer.list_topics(timeout=ANSWER_S).topics
        except KafkaException:
            return False  # the broker is away, and the next read reports it
        found = sorted(set(filter(self._matches, known)) - INTERNAL)
        if not found or found == self.topics:
            return False
        self.topics = found
        return True
