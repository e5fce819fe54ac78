"""Objects that kill their decoder, through the pipeline with real processes."""

import pytest

from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.behind import DecodersBehind
from tests.support.pipelines import World, csv, run_to_end


@pytest.mark.usefixtures("planted")
def test_an_object_that_kills_its_decoder_is_answered_and_nobody_else_is_blamed() -> None:
    decoders = DecodersBehind()

    @virtual_time
    async def scenario() -> None:
        world = World(decoders=decoders)
        world.with_settings(inline_bytes=1)
        for number, word in enumerate((b"segfault", b"fine")):
            world.announce(f"{number}.csv", csv(3))
            world.announce(f"{number}.deadly", word)
        await run_to_end(world, 4)
        errors = [record["error"] for record in world.records() if record.get("error")]
        assert [error["code"] for error in errors] == ["bad_format"]
        assert "the decoder was killed by signal 11 (SIGSEGV)" in errors[0]["message"]
        rows = [
            (record["source"]["offset"], record["row"])
            for record in world.records()
            if "row" in record
        ]
        good = [(0, row) for row in range(3)] + [(2, row) for row in range(3)]
        assert sorted(rows) == sorted([*good, (1, None), (3, 0), (3, 1)])

    scenario()
    assert set(decoders.deaths) == {"SIGSEGV"}


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    ("word", "code", "words"),
    [
        (b"busy", "unavailable", "No buffer space available"),
        (b"exit", "bad_format", "exit code 7"),
    ],
)
def test_an_object_is_tried_again_if_nothing_killed_its_first_decoder(
    word: bytes, code: str, words: str
) -> None:
    decoders = DecodersBehind()

    @virtual_time
    async def scenario() -> None:
        world = World(decoders=decoders)
        world.with_settings(inline_bytes=1)
        world.announce("0.deadly", word)
        await run_to_end(world, 1)
        (last,) = world.records()
        assert last["error"]["code"] == code
        assert words in last["error"]["message"]

    scenario()
    assert decoders.deaths == ["none", "none"]
