"""What both engines are made of: the names, the re-keying and the ledger, from one configuration.

Rule: made here alone, so that the engines differ in their way to Kafka and in nothing else. Owner:
the engine.
"""

from collections.abc import Callable
from typing import NamedTuple

from penstock import config
from penstock.ports import Clock
from penstock.scenes.boundary import Fits, Send
from penstock.scenes.changelog import KafkaChangelog
from penstock.scenes.core.picture import Pictures
from penstock.scenes.core.rules import Streams
from penstock.scenes.figures import Watch
from penstock.scenes.late import Late
from penstock.scenes.ledger import Ledger
from penstock.scenes.packing import Packing
from penstock.scenes.rekey import Rekey
from penstock.scenes.settings import Names, names, rules_of


class Parts(NamedTuple):
    names: Names
    rekey: Rekey
    ledger: Ledger


def parts_of(
    cfg: config.Config, send: Send, fits: Fits, clock: Clock, is_behind: Callable[[], bool]
) -> Parts:
    """`is_behind`: are there records that came long ago and were not handled yet? Raises `Fatal`
    for settings that cannot be meant.
    """
    scenes, topics = cfg.scenes, names(cfg.scenes)
    late = Late(topics.late, fits, is_dropped=scenes.late == "drop")
    rekey = Rekey(Streams(scenes.site), topics.by_site, late, fits)
    ledger = Ledger(
        rules=rules_of(scenes),
        rekey=rekey,
        packing=Packing(Pictures(scenes.inline, scenes.fill), late, topics, fits),
        names=topics,
        send=send,
        changelog=KafkaChangelog(cfg.kafka, topics.changelog),
        watch=Watch(clock.wall_ms),
        now_ms=steady(clock),
        is_behind=is_behind,
    )
    return Parts(topics, rekey, ledger)


def steady(clock: Clock) -> Callable[[], int]:
    """The system's time as it is now, in milliseconds, which goes on without its jumps: what is
    decided by it does not wait when the system's time is set back.
    """
    began_ms = clock.wall_ms() - clock.now() * 1000
    return lambda: int(began_ms + clock.now() * 1000)
