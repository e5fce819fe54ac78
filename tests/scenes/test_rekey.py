"""What is no prediction, or has no site, is refused to the late topic, and ends no worker."""

from typing import Any

import pytest
from msgspec.json import encode

from penstock.messages.scene import decode_late
from penstock.scenes.changelog import Out
from penstock.scenes.core.rules import SiteStreams
from penstock.scenes.ledger import Keyed
from penstock.scenes.records import LateTopic, Rekey
from penstock.scenes.site_figures import KeyedFigures
from tests.scenes.flows import EPOCH, arrival
from tests.scenes.test_ledger import BATCHES
from tests.scenes.world import PATTERN, Kafka, World


def test_what_has_no_site_goes_to_the_late_topic() -> None:
    value = arrival("a", 1, 0, EPOCH, EPOCH).value
    assert rekeyed(value) == ("by-site", b"s", value)
    _, _, alone = rekeyed(value.replace(b"s/a", b"alone"))
    assert decode_late(alone).reason == "no_site"


# A row of a number that no program counts to, an id that nobody can have, and the like.
GOOD = arrival("a", 1, 0, EPOCH, EPOCH).value
CANNOT_BE = {
    "no record": b"",
    "half of one": b"{",
    "no text": b"\xff",
    "no text in the answer": GOOD.replace(b'{"label":1}', b'"\xff"'),
    "a row beyond 64 bits": GOOD.replace(b'"row":0', b'"row":%d' % 10**30),
    "an offset beyond 64 bits": GOOD.replace(b'"offset":1', b'"offset":%d' % 10**30),
    "an object of 5,000 digits": GOOD.replace(b"/1/0/0", b"/1/%b/0" % (b"9" * 5_000)),
    "an object beyond 64 bits": GOOD.replace(b"/1/0/0", b"/1/%d/0" % 10**30),
    "an id without end": GOOD.replace(b"refs/", b"r" * 10_000 + b"/", 1),
    "a stream without end": GOOD.replace(b"s/a", b"s/" + b"a" * 10_000),
    "a time of 5,000 digits": GOOD.replace(b"%d" % EPOCH, b"9" * 5_000),
    "a depth without end": GOOD.replace(b'{"label":1}', b"[" * 10_000 + b"]" * 10_000),
}


@pytest.mark.parametrize("name", CANNOT_BE)
async def test_what_cannot_be_is_refused_and_ends_no_worker(name: str) -> None:
    _, key, value = rekeyed(CANNOT_BE[name])
    broken = decode_late(value)
    assert (broken.id, broken.reason, key) == ("p/0/1", "unreadable", b"p/0/1")
    # Of a version before, it may lie on the topic behind.
    world = World()
    worker = await world.worker()
    await worker.handle([Keyed(3, "s", CANNOT_BE[name], EPOCH, 7), *BATCHES[0]])
    (late,) = map(decode_late, world.kafka.of("late"))
    assert (late.id, late.reason) == ("by-site/3/7", "unreadable")
    assert len(world.kafka.of("scenes")) == 1


@pytest.mark.parametrize("time", [10**30, -(10**30), 1.5, "yesterday", True, [EPOCH]])
async def test_a_time_that_cannot_be_is_none(time: Any) -> None:
    world = World()
    worker = await world.worker()
    wrong = GOOD.replace(b"%d" % EPOCH, encode(time) if time != 10**30 else b"%d" % 10**30)
    await worker.handle([Keyed(3, "s", wrong, EPOCH, 7)])
    assert [decode_late(each).reason for each in world.kafka.of("late")] == ["no_time"]
    assert (await world.worker()).sites.keys() == {"s"}


def test_what_the_repartition_topic_does_not_take_goes_to_the_late_topic() -> None:
    (passed,) = out(GOOD)
    assert passed.instead is not None
    (instead,) = passed.instead("INVALID_RECORD: no such record here")
    letter = decode_late(instead.value or b"")
    assert (instead.topic, letter.reason, letter.site) == ("late", "result_refused", "s")
    assert bytes(letter.record or b"") == GOOD
    assert instead.instead is None


def rekeyed(value: bytes) -> tuple[str, bytes, bytes]:
    (made,) = out(value)
    assert made.value is not None
    return made.topic, made.key, made.value


def out(value: bytes) -> list[Out]:
    kafka = Kafka()
    late = LateTopic("late", kafka.fits, is_dropped=False)
    rekey = Rekey(SiteStreams(PATTERN), "by-site", late, kafka.fits, KeyedFigures(lambda: EPOCH))
    return rekey.out(value, "p/0/1", EPOCH)
