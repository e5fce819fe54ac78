"""A row that a server refused together with requests of others is asked again alone."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from penstock.adapters.model_servers.asked_again_alone import AskedAgainAlone
from penstock.core.rows.payload import JsonRows, Payload
from penstock.errors import Rejected, Transient
from penstock.ports import Answers
from penstock.tools.simulation.virtual_time import virtual_time


def rows(*elements: bytes) -> list[JsonRows]:
    return [JsonRows.of(elements)]


@dataclass
class Gathering:
    """Puts what is there within its window into one batch, and fails all of it for one bad row."""

    window_s: float = 0.005
    requests: list[list[bytes]] = field(default_factory=list)
    batch: list[bytes] = field(default_factory=list)
    waiting: int = 0
    version: str | None = None
    most_rows: int | None = None
    fails: type[Exception] | None = None

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        found = [bytes(payload.body) for payload in payloads if isinstance(payload, JsonRows)]
        self.requests.append(found)
        self.batch += found
        batch = self.batch
        self.waiting += 1
        try:
            await asyncio.sleep(self.window_s)
        finally:
            self.waiting -= 1
            if not self.waiting:
                self.batch = []
        if self.fails is not None:
            raise self.fails("away")
        if any(b"bad" in one for one in batch):
            raise Rejected("model_rejected", "a row is bad")
        return Answers([b"1"] * sum(payload.rows for payload in payloads), {})

    async def ready(self) -> bool:
        return True

    async def aclose(self) -> None:
        """Nothing to close."""


@virtual_time
async def test_a_good_row_that_met_a_bad_one_is_answered_and_the_bad_one_is_refused() -> None:
    server = Gathering()
    model = AskedAgainAlone(server)
    good, bad = await asyncio.gather(
        model.predict(rows(b"1")), model.predict(rows(b'"bad"')), return_exceptions=True
    )
    assert isinstance(good, Answers)
    assert isinstance(bad, Rejected)


@virtual_time
async def test_company_that_comes_later_is_company() -> None:
    server = Gathering()
    model = AskedAgainAlone(server)
    first = asyncio.create_task(model.predict(rows(b"1")))
    await asyncio.sleep(0.001)
    with pytest.raises(Rejected):
        await model.predict(rows(b'"bad"'))
    assert (await first).values == [b"1"]


@virtual_time
async def test_a_row_that_was_alone_is_asked_once() -> None:
    server = Gathering()
    with pytest.raises(Rejected):
        await AskedAgainAlone(server).predict(rows(b'"bad"'))
    assert len(server.requests) == 1


@virtual_time
async def test_several_rows_are_searched_by_who_asks_and_not_asked_again_here() -> None:
    server = Gathering()
    model = AskedAgainAlone(server)
    ends = await asyncio.gather(
        model.predict(rows(b"1", b'"bad"')), model.predict(rows(b"1", b"2")), return_exceptions=True
    )
    assert [type(end) for end in ends] == [Rejected, Rejected]
    assert len(server.requests) == 2


@virtual_time
async def test_others_wait_while_one_is_asked_alone_and_go_on_when_its_caller_gives_up() -> None:
    server = Gathering()
    model = AskedAgainAlone(server)
    tasks = [asyncio.create_task(model.predict(rows(one))) for one in (b'"bad"', b"1")]
    await asyncio.sleep(server.window_s * 1.5)
    late = asyncio.create_task(model.predict(rows(b"2")))
    await asyncio.sleep(0)
    assert len(server.requests) == 3, "the two, and one of them again, alone"
    tasks[0].cancel()
    assert (await late).values == [b"1"]
    await asyncio.gather(*tasks, return_exceptions=True)


@virtual_time
async def test_an_ill_server_is_not_asked_again() -> None:
    server = Gathering(fails=Transient)
    model = AskedAgainAlone(server)
    ends = await asyncio.gather(
        model.predict(rows(b"1")), model.predict(rows(b"2")), return_exceptions=True
    )
    assert [type(end) for end in ends] == [Transient, Transient]
    assert len(server.requests) == 2
