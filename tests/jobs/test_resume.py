"""A listing that was cut off goes on where it was, on a broker: nothing missing, nothing double."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count

import orjson
import pytest

from penstock import config
from penstock.adapters.kafka.announcer import announcing
from penstock.adapters.kafka.positions_from_outside import KeptPositions
from penstock.adapters.kafka.reader import open_reader
from penstock.adapters.memory import MemoryObjects
from penstock.core.routing.model_routes import Routes
from penstock.errors import EXIT_USAGE, Fatal
from penstock.ports import Commit
from penstock.tools.jobs import list_rows, listing_position
from penstock.tools.jobs.produce import Produced, Wanted, produce

pytest.importorskip("confluent_kafka")

ROWS = 3_000
WANTED = Wanted(manifest="s3://lists/a.csv", resume=True)


class Cut(Exception):
    """The process is gone."""


@pytest.fixture
def objects() -> MemoryObjects:
    """A list of three streams."""
    store = MemoryObjects()
    store.put("lists", "a.csv", rows_of(ROWS))
    return store


def rows_of(rows: int) -> bytes:
    return b"bucket,key\n" + b"".join(b"b,%d/%d\n" % (n % 3, n) for n in range(rows))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of some ten references, a list in thirty pieces, and no wait for another machine."""
    monkeypatch.setattr(list_rows, "BATCH_ROWS", ROWS // 30)
    monkeypatch.setattr("penstock.tools.jobs.produce.SENT_BYTES", 1_000)
    monkeypatch.setattr(listing_position, "ARRIVED_S", 0.1)
    monkeypatch.setattr(listing_position, "BEGUN_S", 0.1)


async def announce(
    cfg: config.Config,
    objects: MemoryObjects,
    wanted: Wanted = WANTED,
    on_sent: Callable[[int], None] = lambda _: None,
) -> Produced:
    return await produce(cfg, objects, wanted, Routes(["rows"], ()), on_sent=on_sent)


async def cut_off(
    cfg: config.Config, objects: MemoryObjects, pieces: int, wanted: Wanted = WANTED
) -> None:
    """A start that ends after so many pieces of the list."""
    seen = count(1)

    def on_sent(_: int) -> None:
        if next(seen) == pieces:
            raise Cut

    with pytest.raises(Cut):
        await announce(cfg, objects, wanted, on_sent=on_sent)


async def announced(cfg: config.Config) -> dict[int, list[str]]:
    """The keys on the topic, by partition."""
    found: dict[int, list[str]] = {}

    def take(partition: int, _: int, __: bytes | None, value: bytes | None) -> None:
        document = orjson.loads(value or b"{}")
        found.setdefault(partition, []).append(document.get("key", "foreign"))

    async with open_reader(cfg.kafka, "read_uncommitted") as reader:
        await reader.read("refs", await reader.spans("refs"), take, lambda _: None)
    return found


@pytest.mark.parametrize("keep_s", [0.0, 60.0])
async def test_after_two_cuts_every_reference_is_there_once_and_in_order(
    cfg: config.Config, objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch, keep_s: float
) -> None:
    """Whether the position was kept right before, or only at the beginning."""
    monkeypatch.setattr(listing_position, "KEEP_S", keep_s)
    await cut_off(cfg, objects, 9)
    async with announcing(cfg.kafka) as other:  # somebody else writes to the topic, too
        for partition in range(4):
            await other.send(b"{}", b"", partition)
    await cut_off(cfg, objects, 11)
    done = await announce(cfg, objects)
    assert done.before > 0
    assert done.before + done.references == ROWS
    found = {
        number: [key for key in keys if key != "foreign"]
        for number, keys in (await announced(cfg)).items()
    }
    assert sorted(key for keys in found.values() for key in keys) == sorted(
        f"{n % 3}/{n}" for n in range(ROWS)
    )
    for keys in found.values():
        assert keys == sorted(keys, key=lambda key: int(key.partition("/")[2]))


async def test_a_start_that_is_cut_off_behind_what_an_earlier_one_sent_doubles_nothing(
    cfg: config.Config, objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_position, "KEEP_S", 60.0)
    await cut_off(cfg, objects, 20)
    monkeypatch.setattr(listing_position, "KEEP_S", 0.0)
    await cut_off(cfg, objects, 3)
    done = await announce(cfg, objects)
    assert done.before + done.references == ROWS
    assert sum(map(len, (await announced(cfg)).values())) == ROWS


async def test_what_is_done_is_not_announced_again_unless_it_is_asked_for(
    cfg: config.Config, objects: MemoryObjects
) -> None:
    assert (await announce(cfg, objects)).references == ROWS
    again = await announce(cfg, objects)
    assert (again.references, again.before) == (0, ROWS)
    assert (await announce(cfg, objects, Wanted(manifest="s3://lists/a.csv"))).references == ROWS


@pytest.mark.parametrize("wanted", [Wanted(manifest="s3://lists/a.csv"), Wanted(["s3://b/**"])])
@pytest.mark.parametrize("resume", [False, True])
async def test_what_was_cut_off_needs_a_word_how_to_go_on(
    cfg: config.Config, objects: MemoryObjects, wanted: Wanted, resume: bool
) -> None:
    """Whether the first start had `--resume` or not."""
    for n in range(ROWS):
        objects.put("b", f"{n % 3}/{n}", b"")
    await cut_off(cfg, objects, 2, replace(wanted, resume=resume))
    with pytest.raises(Fatal, match=r"--resume goes on there, --anew") as caught:
        await announce(cfg, objects, wanted)
    assert caught.value.exit_code == EXIT_USAGE
    anew = await announce(cfg, objects, replace(wanted, anew=True))
    assert (anew.references, anew.before) == (ROWS, 0)


async def test_a_glob_that_names_nothing_leaves_no_position(
    cfg: config.Config, objects: MemoryObjects
) -> None:
    wanted = Wanted(["s3://b/**"])
    with pytest.raises(Fatal, match="no object matches"):
        await announce(cfg, objects, wanted)
    objects.put("b", "0/0", b"")
    assert (await announce(cfg, objects, wanted)).references == 1


async def test_objects_that_are_named_one_by_one_keep_no_position(
    cfg: config.Config, objects: MemoryObjects
) -> None:
    wanted = Wanted(["s3://lists/a.csv"])
    await cut_off(cfg, objects, 1, wanted)
    assert (await announce(cfg, objects, wanted)).references == 1


async def test_a_list_that_changed_has_no_place_to_go_on(
    cfg: config.Config, objects: MemoryObjects
) -> None:
    await cut_off(cfg, objects, 5)
    objects.put("lists", "a.csv", rows_of(ROWS + 1))
    with pytest.raises(Fatal, match="has changed"):
        await announce(cfg, objects)


async def test_globs_go_on_behind_a_key_whatever_came_or_went_before_it(
    cfg: config.Config, objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_position, "KEEP_S", 0.0)
    for n in range(2_500):
        objects.put("b", f"{n % 3}/{n:04d}", b"")
    wanted = Wanted(["s3://b/**"], resume=True)

    def cut(sent: int) -> None:
        if sent > 1_500:
            raise Cut

    with pytest.raises(Cut):
        await announce(cfg, objects, wanted, on_sent=cut)
    objects.put("b", "0/00000", b"")
    objects.delete("b", "0/0000")
    await announce(cfg, objects, wanted)
    keys = [key for keys in (await announced(cfg)).values() for key in keys]
    assert sorted(keys) == sorted(f"{n % 3}/{n:04d}" for n in range(2_500))


async def test_an_earlier_start_ends_when_a_later_one_has_taken_over(
    cfg: config.Config, objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it sends anything more."""
    monkeypatch.setattr(listing_position, "SURE_S", 0.0)
    await cut_off(cfg, objects, 5)
    later: list[Produced] = []

    store = MemoryObjects()
    store.put("lists", "a.csv", rows_of(ROWS))
    opened = count()

    async def on_open(_: object) -> None:
        """The earlier start reads the list: meanwhile a later one does all the work."""
        if next(opened) == 1:
            later.append(await announce(cfg, objects))

    store.on_open = on_open
    with pytest.raises(Fatal, match="taken over"):
        await announce(cfg, store)
    assert later[0].before + later[0].references == ROWS
    assert sum(map(len, (await announced(cfg)).values())) == ROWS


@pytest.mark.parametrize("is_cut", [False, True])
async def test_of_two_that_start_together_one_goes_on(
    cfg: config.Config, objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch, is_cut: bool
) -> None:
    if is_cut:
        await cut_off(cfg, objects, 5)
    write, begun, both_have_begun = KeptPositions.write, count(1), asyncio.Event()

    async def together(kept: KeptPositions, commits: Mapping[int, Commit]) -> None:
        """However slow the machine is: each has written before the other one looks."""
        await write(kept, commits)
        if next(begun) == 2:
            both_have_begun.set()
        await both_have_begun.wait()

    monkeypatch.setattr(KeptPositions, "write", together)
    ended = await asyncio.gather(
        *(announce(cfg, objects) for _ in range(2)), return_exceptions=True
    )
    done = [one for one in ended if isinstance(one, Produced)]
    refused = [one for one in ended if isinstance(one, Fatal)]
    assert (len(done), len(refused)) == (1, 1), ended
    assert "taken over" in str(refused[0])
    keys = [key for keys in (await announced(cfg)).values() for key in keys]
    assert sorted(keys) == sorted(f"{n % 3}/{n}" for n in range(ROWS))
