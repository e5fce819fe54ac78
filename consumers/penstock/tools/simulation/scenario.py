"""What decides a world: the scenario of the test, and the settings that are drawn from the seed.

Rule: sizes are small and limits tight, so that a world reaches each limit within a few seconds.
"""

from dataclasses import dataclass, replace
from random import Random

from penstock.core.progress.line_stop import NO_LIMITS
from penstock.core.records.output_records import Labels, same_partition
from penstock.core.routing.model_routes import ModelRoute, Routes
from penstock.core.routing.store_choice import DEFAULT
from penstock.core.window.priorities import Priorities, StreamPriority
from penstock.core.window.window import WindowLimits
from penstock.formats.runs import RowOptions
from penstock.pipeline.settings import LaneLimits, ModelTerms, Settings, TimeLimits
from penstock.stages.consume import IntakeTerms
from penstock.stages.encode import PublishTerms
from penstock.stages.read_object import ObjectTerms
from penstock.stages.reject import LetterTerms
from penstock.tools.simulation.checks.truth import Answer, MakeObject
from penstock.tools.simulation.unreliable_services import echo

# In some worlds this model answers beside the default one.
OTHER = "other"
INPUT, OUTPUT, DEAD_LETTERS = "refs", "predictions", "predictions.dlq"


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is simulated: your model, your objects, your formats. By default, every kind that
    exists.

    `answer`: the model, a function that gets one payload at a time; a row's answer must not depend
    on its neighbours. `make_object`: a function that returns the suffix of a file's name and the
    file's bytes. With `shadow` each worker has a shadow model, which fails and is slow at random.
    """

    answer: Answer = echo
    make_object: MakeObject | None = None
    rows: RowOptions | None = None
    shadow: bool = False


# Rows of numbers, rows of JSON, and opaque rows. With opaque rows every object is read as lines of
# text.
_ROWS = (
    *[RowOptions(), RowOptions(form="json")] * 2,
    RowOptions(form="bytes", format="text"),
)

_PRIORITIES = (("s1", StreamPriority(weight=8)), ("s[23]", StreamPriority(kind="backlog")))


def drawn_settings(random: Random, scenario: Scenario) -> Settings:
    pick = random.choice
    partitions = pick((1, 2, 3))
    by_stream = pick((False, True))
    rows = scenario.rows or pick(_ROWS)
    window = WindowLimits(
        max_rows=pick((1, 4, 16, 64)),
        max_bytes=pick((64, 1 << 20)),
        max_wait_s=pick((0.0, 0.01)),
        eager=pick((False, False, True)),
        fair=pick((True, True, False)),
    )
    target_p99_s = pick((None, None, 0.05))
    fetchers, callers = pick((1, 3, 8)), pick((1, 2, 4))
    # Drawn without the random source, so that the other settings stay as they are.
    if (fetchers + callers) % 3 == 0:
        window = replace(window, priorities=Priorities(_PRIORITIES))
    # In half of the worlds the best numbers are learned.
    is_learned = pick((False, True))
    made = Settings(
        labels=Labels(INPUT, OUTPUT, "rows", None, markers=True),
        main=ModelTerms(rows, window, target_p99_s, callers, begin_calls=1 if is_learned else None),
        objects=ObjectTerms(
            fetchers,
            object_bytes=None,
            inline_bytes=500,
            pin=True,
            wait_for_object_s=0.0,
            begin_fetches={DEFAULT: 1} if is_learned else {},
            # Drawn without the random source, so that the other settings stay as they are.
            hedged=(DEFAULT,) if (fetchers + callers + partitions) % 2 else (),
        ),
        buffer_bytes=pick((1, 4_000, 30_000, 1 << 20)),
        # A line never stops, because in this world every row must be answered.
        lane=LaneLimits(pick((1, 3, 16)), NO_LIMITS, order_by_stream=by_stream),
        times=TimeLimits(
            commit_interval_s=pick((0.02, 0.2)),
            drain_s=pick((0.0, 0.1, 5.0)),
            broker_patience_s=120.0,
            patience_s=None,
            stall_s=300.0,
        ),
        intake=IntakeTerms(),
        publish=PublishTerms(same_partition),
        letters=LetterTerms(DEAD_LETTERS, partitions),
        input_partitions=partitions,
        # With order by stream, `dedupe` is off, because a pointer to an earlier answer of another
        # stream might be published before that answer.
        dedupe=not by_stream and pick((False, True, True)),
    )
    return _with_another_model(made, random) if random.random() < 0.3 else made


# All workers of a world have the same routes, because workers with different routes cannot trust
# each other's answers. Some streams are answered by one model, some by the other, and two streams
# by both.
FAN_OUT = Routes(
    ["rows", OTHER],
    [ModelRoute(("rows", OTHER), stream="s[12]"), ModelRoute(("rows",), split={OTHER: 50.0})],
)


def with_fan_out(settings: Settings) -> Settings:
    """The settings with a second model, so that two models answer some of the rows."""
    return replace(settings, models=settings.models or {OTHER: settings.main}, routes=FAN_OUT)


def _with_another_model(settings: Settings, random: Random) -> Settings:
    """The settings with a second model, which answers half of the streams."""
    pick = random.choice
    main = settings.main
    window = replace(main.window, max_rows=pick((1, 4, 64)), max_wait_s=pick((0.0, 0.02)))
    target_p99_s = pick((None, 0.05))
    return replace(
        settings,
        models={OTHER: ModelTerms(main.rows, window, target_p99_s, callers=pick((1, 3)))},
        routes=Routes(
            [settings.labels.model, OTHER],
            [ModelRoute((settings.labels.model,), split={OTHER: 50.0})],
        ),
    )
