"""What both engines are made of: the names, the re-keying and the ledger, from one configuration.

Rule: made here alone, so that the engines differ in their way to Kafka and in nothing else. Owner:
the engine.
"""

from collections.abc import Callable
from typing import NamedTuple

from consumers import config
from consumers.scenes.boundary import Send
from consumers.scenes.changelog import KafkaChangelog
from consumers.scenes.ledger import Ledger, Topics
from consumers.scenes.names import Names, names, rules_of
from consumers.scenes.picture import Pictures
from consumers.scenes.rekey import Rekey
from consumers.scenes.rules import Streams
from consumers.scenes.watch import Watch


class Parts(NamedTuple):
    names: Names
    rekey: Rekey
    ledger: Ledger


def parts_of(
    cfg: config.Config, send: Send, wall_ms: Callable[[], int], is_behind: Callable[[], bool]
) -> Parts:
    """`is_behind`: are there records that came long ago and were not handled yet? Raises `Fatal`
    for settings that cannot be meant.
    """
    scenes, topics = cfg.scenes, names(cfg.scenes)
    streams = Streams(scenes.site)
    ledger = Ledger(
        rules_of(scenes),
        streams,
        Pictures(scenes.inline, scenes.fill),
        Topics(topics.scenes, topics.late, topics.changelog),
        send,
        KafkaChangelog(cfg.kafka, topics.changelog),
        Watch(wall_ms),
        wall_ms,
        is_behind,
    )
    rekey = Rekey(streams, topics, late_is_dropped=scenes.late == "drop")
    return Parts(topics, rekey, ledger)
