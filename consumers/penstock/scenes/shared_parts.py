"""What both engines have in common, so that they differ only in how they reach Kafka."""

from collections.abc import Callable
from typing import NamedTuple

from penstock import config
from penstock.ports import Clock
from penstock.scenes.changelog import KafkaChangelog
from penstock.scenes.core.rules import SiteStreams
from penstock.scenes.ledger import SiteLedger
from penstock.scenes.ledger_ports import Fits, Send
from penstock.scenes.packing import Packing, SceneRecords
from penstock.scenes.rekey_or_refuse import LateTopic, Rekey
from penstock.scenes.settings import Names, names, rules_of
from penstock.scenes.site_figures import SiteFigures


class Parts(NamedTuple):
    names: Names
    rekey: Rekey
    ledger: SiteLedger


def parts_of(
    cfg: config.Config, send: Send, fits: Fits, clock: Clock, is_behind: Callable[[], bool]
) -> Parts:
    """Make the parts for an engine that sends its records through `send`. `is_behind`: a function
    that returns True while old, unhandled records lie in Kafka. Raises `Fatal` if settings
    contradict each other.
    """
    scenes, topics = cfg.scenes, names(cfg.scenes)
    late = LateTopic(topics.late, fits, is_dropped=scenes.late == "drop")
    rekey = Rekey(SiteStreams(scenes.site), topics.by_site, late, fits)
    ledger = SiteLedger(
        rules=rules_of(scenes, cfg.limits.sites),
        rekey=rekey,
        packing=Packing(SceneRecords(scenes.inline, scenes.fill), late, topics, fits),
        names=topics,
        send=send,
        changelog=KafkaChangelog(cfg.kafka, topics.changelog),
        figures=SiteFigures(clock.wall_ms),
        now_ms=steady(clock),
        is_behind=is_behind,
    )
    return Parts(topics, rekey, ledger)


def steady(clock: Clock) -> Callable[[], int]:
    """A clock in milliseconds. It starts at the system's time, but ignores later jumps of the
    system's clock, so that no decision has to wait when the system's clock is set back.
    """
    began_ms = clock.wall_ms() - clock.now() * 1000
    return lambda: int(began_ms + clock.now() * 1000)
