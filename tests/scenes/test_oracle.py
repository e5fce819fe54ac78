"""The oracle of `scripts/chaos --scenes`: it agrees with a worker, and finds what is wrong."""

import pytest
from msgspec.json import encode

from chaos_run.cameras import Shape, said_at
from chaos_run.scenes_oracle import Bounds, Said, Verdict, compare
from penstock.scenes.changelog import CLAIM_KEY
from penstock.scenes.core.rules import Rules
from penstock.scenes.ledger import Keyed
from tests.scenes.flows import EPOCH
from tests.scenes.world import Kafka, ledger_on

SHAPE = Shape(sites=2, members=3, hz=20)
BOUNDS = Bounds(Rules().deadline_ms, Rules().ahead_ms)


async def run(instants: int) -> tuple[list[Said], Kafka]:
    """Every prediction as it comes, with a look at the clock in between."""
    kafka, now = Kafka(), EPOCH
    ledger = ledger_on(kafka, Rules(listed=SHAPE.members_of()), lambda: now)
    await ledger.take_over([0])
    predictions = []
    for instant in range(instants):
        due_ms = EPOCH + instant * SHAPE.period_ms
        for delay, _, stream, value in sorted(said_at(instant, due_ms, SHAPE)):
            now = due_ms + delay
            predictions.append(Said(value, now))
            await ledger.handle([Keyed(0, stream.partition("/")[0], value, now, 0)])
            await ledger.tick()
    now += 1_000
    await ledger.tick()
    return predictions, kafka


def judged(predictions: list[Said], kafka: Kafka, scenes: list[bytes]) -> Verdict:
    return compare(
        predictions,
        [Said(value, EPOCH) for value in scenes],
        [Said(value, EPOCH) for value in kafka.of("late")],
        period_ms=SHAPE.period_ms,
        members=SHAPE.members_of(),
        bounds=BOUNDS,
    )


async def test_it_agrees_with_a_worker() -> None:
    predictions, kafka = await run(120)
    report = judged(predictions, kafka, kafka.of("scenes"))
    assert not report.wrong, report.examples
    assert report.scenes == 240
    assert 0 < report.complete < 240, "one site has a member that is idle"
    assert kafka.changelog[0].key == CLAIM_KEY


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        (b'"present"', b'"rejected"', "wrong status"),
        (b'"complete"', b'"deadline"', "closed for another reason"),
        (b'"missing":1', b'"missing":0', "wrong count of the absent"),
        (b"/0/5/0/0", b"/0/6/0/0", "not the members that belong there"),
    ],
)
async def test_it_finds_what_is_wrong(old: bytes, new: bytes, wrong: str) -> None:
    predictions, kafka = await run(12)
    scenes = [value.replace(old, new, 1) for value in kafka.of("scenes")]
    assert scenes != kafka.of("scenes")
    assert wrong in judged(predictions, kafka, scenes).wrong
    assert "lost" in judged(predictions, kafka, kafka.of("scenes")[:-1]).wrong


def said(member: str, lag_ms: int) -> Said:
    """Of the members of a site that lag, each by another time."""
    id = f"in/0/{ord(member[-1])}/0/0"
    return Said(
        encode({"id": id, "stream": f"site-0/{member}", "event_time": EPOCH}), EPOCH + lag_ms
    )


@pytest.mark.parametrize(
    ("other_ms", "refused_ms", "is_uneven", "is_so"),
    [
        (900, 1_500, False, False),
        (5_000, 1_500, False, True),
        (900, 1_500, True, False),
        (900, 9_000, False, False),
        (900, 9_000, True, True),
    ],
)
def test_who_was_refused_as_ahead_was_so(
    other_ms: int, refused_ms: int, is_uneven: bool, is_so: bool
) -> None:
    """By Kafka's times; where the engine works off what has piled up partition by partition, also
    who came by that.
    """
    one = said("cam-0", 1_100)
    behind = [
        Said(
            said(cam, 0).value.replace(b"%d" % EPOCH, b"%d" % (EPOCH + 990 - other_ms)), EPOCH + 990
        )
        for cam in ("cam-1", "cam-2")
    ]
    late = Said(encode({"id": "in/0/48/0/0", "reason": "ahead"}), EPOCH + refused_ms)
    comparison = compare(
        [*behind, one],
        [],
        [late],
        period_ms=SHAPE.period_ms,
        members=SHAPE.members_of(),
        bounds=BOUNDS._replace(is_uneven=is_uneven),
    )
    assert ("refused for a reason that is not true" in comparison.wrong) is not is_so
