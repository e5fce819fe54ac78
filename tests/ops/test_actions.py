"""What people ask for on the page becomes the command that they could type, and nothing else."""

import asyncio
from typing import Any

import aiohttp
import pytest

from penstock import config
from penstock.commands.common_options import epoch_ms
from penstock.messages.dead_letter import DeadLetter, Unanswered, dead_letter, decode_dead_letter
from penstock.messages.prediction import Source
from penstock.ops.http_server import serving
from penstock.ops.page.actions import Actions, GoOn, Redrive, go_on, redrive
from penstock.tools.dlq.letters import Choice, LetterPlace


def letter(stream: str) -> DeadLetter:
    nothing: dict[str, Any] = dict.fromkeys(
        ("reference", "version", "member", "rows", "event_time", "value")
    )
    return decode_dead_letter(
        dead_letter(
            Unanswered(
                code="bad_row", stage="expand", message="", attempts=1, stream=stream,
                source=Source("refs", 0, 1), object_index=0, failed_at=5, model="m", **nothing,
            )
        )
    )  # fmt: skip


@pytest.mark.parametrize("name", ["cam-7", "--dry-run", "a*[b]?c", "-- x"])
def test_a_single_letter_is_chosen_by_its_exact_name_and_time(name: str) -> None:
    at_ms = 1_795_208_217_413
    words = redrive(Redrive(dry=False, code="bad_row", stream=name, at_ms=at_ms))
    assert words[:2] == ["redrive", "--code=bad_row"]
    glob = words[2].removeprefix("--stream=")
    chosen = Choice(streams=(glob,))
    assert chosen.takes(LetterPlace(0, 0), letter(name))
    assert not chosen.takes(LetterPlace(0, 0), letter(f"{name}x"))
    times = [epoch_ms(word.partition("=")[2]) for word in words[3:]]
    assert times == [at_ms, at_ms + 1]


def test_many_are_chosen_by_a_glob_and_an_age_and_only_counted_at_first() -> None:
    asked = Redrive(dry=True, stream="site-1/*", glob=True, since="15m", latest=True)
    words = ["redrive", "--dry-run", "--latest", "--stream=site-1/*", "--since=15m"]
    assert redrive(asked) == words
    assert redrive(Redrive(dry=False)) == ["redrive"]
    assert go_on(GoOn("skip", "--help")) == ["skip", "--", "--help"]


async def test_without_a_token_nothing_can_be_asked_for_and_nonsense_never() -> None:
    actions = Actions(None)
    for token, status in ((None, 404), ("t", 401)):
        http = config.Http(port=0, token=token)
        async with (
            serving(http, {}, actions=actions.handlers) as url,
            aiohttp.ClientSession(base_url=url) as session,
        ):
            async with session.post("/api/redrive", json={"dry": True}) as answer:
                assert answer.status == status
            if token is None:
                continue
            right = {"Authorization": f"Bearer {token}"}
            for nonsense in ({}, {"dry": True, "since": "1h --originals"}, {"verb": "skip"}):
                async with session.post("/api/redrive", json=nonsense, headers=right) as answer:
                    assert answer.status == 400
            for name in ("", "a\0b", "\ud800"):
                words = {"verb": "skip", "stream": name}
                async with session.post("/api/line", json=words, headers=right) as answer:
                    assert answer.status == 400
            async with session.get("/api/redrive", headers=right) as answer:
                assert answer.status == 405


async def test_one_action_runs_at_a_time_and_says_what_the_command_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a broker the command says so, as it does to who types it."""
    monkeypatch.setenv("PENSTOCK_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    async with (
        serving(config.Http(port=0, token="t"), {}, actions=Actions(None).handlers) as url,
        aiohttp.ClientSession(base_url=url, headers={"Authorization": "Bearer t"}) as session,
    ):

        async def ask() -> tuple[int, dict[str, Any]]:
            asked = {"verb": "resume", "stream": "cam-7"}
            async with session.post("/api/line", json=asked) as answer:
                return answer.status, await answer.json()

        found = await asyncio.gather(ask(), ask())
    (first, told), (second, refused) = sorted(found, key=lambda one: one[0])
    assert (first, second) == (200, 409)
    assert not told["ok"]
    assert "Kafka" in told["said"]
    assert "another action is running" in refused["said"]
