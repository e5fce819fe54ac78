"""Every setting of a pipeline is tried with several values, or it is said why it is not."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from penstock.formats.runs import RowOptions
from penstock.tools.simulation.scenario import Scenario
from penstock.tools.simulation.world import World

WORLDS = 100
# The settings that are the same in all worlds, by the reason.
ALWAYS_THE_SAME = {
    "a name": {
        "labels.input_topic", "labels.output_topic", "labels.model", "labels.model_version",
        "labels.versions", "letters.topic", "results.names",
    },
    "only people see it": {
        "main.cost_per_hour", "main.token_prices", "samples", "letters.are_logged", "traces",
    },
    "Scenario(shadow=True) has one": {"shadow"},
    "regions.py is a world of several regions": {"helping", "intake.near"},
    "asked at a worker's start, which is before its world": {"main.canary"},
    "one message has tests/stages": {
        "intake.allow", "intake.stream_bytes", "intake.stream_from", "intake.streams",
        "intake.time_from", "main.is_told_about", "objects.inline_bytes", "objects.object_bytes",
        "objects.wait_for_object_s", "objects.more_fetchers",
    },
    "the checks know the records of this one form": {
        "publish.blocks", "publish.partition_of", "output_partitions", "results",
        "results.encoding", "results.of_objects", "results.only_whole",
    },
    "a line that stops by the share of its letters has tests/stages": {"lane.line.ratio"},
    "longer than what a world goes through": {
        "times.broker_patience_s", "times.patience_s", "times.stall_s",
    },
}  # fmt: skip


def values(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The paths of all plain values below this one. Row options are a value: they are about bytes,
    which the tests of the formats try.
    """
    names = list(getattr(value, "_fields", ()))
    if is_dataclass(value) and not isinstance(value, RowOptions):
        names = [field.name for field in fields(value)]
    for name in names:
        yield from values(getattr(value, name), f"{path}.{name}" if path else name)
    if not names:
        yield path, repr(value)


def test_a_new_setting_is_drawn_or_it_is_said_why_not() -> None:
    tried: dict[str, set[str]] = defaultdict(set)
    for seed in range(WORLDS):
        world = World(seed, Scenario())
        for _ in range(3):
            for path, value in values(world.deployments.now.settings):
                tried[path].add(value)
            world.deployments.change(partitions=2)
    same = {path for path, seen in tried.items() if len(seen) == 1}
    told = set().union(*ALWAYS_THE_SAME.values())
    assert not same - told, "draw them in simulation/scenario.py, or say above why not"
    assert not told - same, "they are tried by now"
