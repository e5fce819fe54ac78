"""A model on several servers: the contract, and who is asked when."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec
import numpy as np
import pytest

from penstock import config
from penstock.adapters.model_servers.protocols import open_model
from penstock.adapters.model_servers.replicas import LOOK_AGAIN_S, LOOK_S, Endpoint, ReplicatedModel
from penstock.core.health.retries import LEAST_ANSWERS, Hedging
from penstock.core.rows.payload import Matrix, Payload
from penstock.errors import Fatal, NoAnswer, Overloaded, Transient, Unreachable, WorkerDied
from penstock.ports import Answers, Model
from penstock.tools.embedded.model_server import EmbeddedModelServer
from penstock.tools.simulation.region_workers import MemoryModel
from penstock.tools.simulation.virtual_time import virtual_time
from tests.adapters.model_servers.contract import ModelContract

PATIENCE_S = 4.0
ROWS = [Matrix(np.ones((2, 4), "<f4"))]
Trouble = Callable[[Sequence[Payload]], Awaitable[Answers | None]]


class Heard:
    def __init__(self) -> None:
        self.passed_over: list[str] = []
        self.hedged: list[str] = []

    def model_failed_over(self, endpoint: str) -> None:
        self.passed_over.append(endpoint)

    def model_hedged(self, outcome: str) -> None:
        self.hedged.append(outcome)


class Server(MemoryModel):
    """Ready unless its script says otherwise."""

    async def ready(self) -> bool:
        try:
            await self.predict(())
        except (Transient, Fatal):
            return False
        return True

    @property
    def with_rows(self) -> int:
        return sum(bool(payloads) for payloads in self.calls)


def pair() -> tuple[ReplicatedModel, Server, Server, Heard]:
    near, far, heard = Server(), Server(), Heard()
    endpoints = [Endpoint("near", near), Endpoint("far", far)]
    return ReplicatedModel(endpoints, PATIENCE_S, heard), near, far, heard


async def takes_long(_: Sequence[Payload]) -> Answers | None:
    await asyncio.sleep(2.0)
    return None


async def usual(_: Sequence[Payload]) -> Answers | None:
    await asyncio.sleep(0.05)
    return None


def hedging_pair() -> tuple[ReplicatedModel, Server, Server, Heard]:
    _, near, far, heard = pair()
    near.script = far.script = usual
    endpoints = [Endpoint("near", near), Endpoint("far", far)]
    return ReplicatedModel(endpoints, PATIENCE_S, heard, Hedging()), near, far, heard


@virtual_time
async def test_a_late_call_is_sent_to_another_server_and_the_first_answer_counts() -> None:
    model, near, far, heard = hedging_pair()
    for _ in range(LEAST_ANSWERS):
        await model.predict(ROWS)
    assert (far.with_rows, heard.hedged) == (0, [])
    near.script = takes_long
    began_s = asyncio.get_running_loop().time()
    assert len((await model.predict(ROWS)).values) == 2
    assert asyncio.get_running_loop().time() - began_s < 0.2
    assert (far.with_rows, heard.hedged, heard.passed_over) == (1, ["won"], [])


@virtual_time
async def test_a_late_call_is_not_sent_again_to_the_same_server() -> None:
    model, near, far, heard = hedging_pair()
    for _ in range(LEAST_ANSWERS):
        await model.predict(ROWS)
    far.script = refused
    near.script = refused
    with pytest.raises(Unreachable):
        await model.predict(ROWS)
    near.script = takes_long
    await asyncio.sleep(60.0)
    await model.predict(ROWS)
    asked = near.with_rows
    await model.predict(ROWS)
    assert (near.with_rows, heard.hedged) == (asked + 1, [])


def fails_with(error: Exception) -> Trouble:
    async def script(_: Sequence[Payload]) -> Answers | None:
        raise error

    return script


async def silent(_: Sequence[Payload]) -> Answers | None:
    await asyncio.Event().wait()
    return None


refused = fails_with(Unreachable("refused"))


@pytest.mark.parametrize("form", ["json", "float32"])
class TestReplicated(ModelContract):
    """With a first server that refuses all connections the promises are the same."""

    @pytest.fixture
    async def model(self, form: str) -> AsyncIterator[Model]:
        async with EmbeddedModelServer() as server:
            settings = {"url": "http://127.0.0.1:1", "replicas": [server.url], "request": form}
            model = open_model(config.Config(model=msgspec.convert(settings, config.Model)))
            yield model
            await model.aclose()


async def test_while_the_first_answers_nobody_else_is_asked() -> None:
    model, _, far, heard = pair()
    await model.predict(ROWS)
    assert (far.calls, heard.passed_over) == ([], [])


@pytest.mark.parametrize("trouble", [refused, silent])
def test_the_next_answers_the_same_rows_within_five_seconds(trouble: Trouble) -> None:
    @virtual_time
    async def scenario() -> None:
        model, near, far, heard = pair()
        near.script = trouble
        assert len((await model.predict(ROWS)).values) == 2
        assert asyncio.get_running_loop().time() <= PATIENCE_S < 5.0
        assert (len(far.calls), heard.passed_over) == (1, ["near"])
        began_s = asyncio.get_running_loop().time()
        await model.predict(ROWS)
        assert asyncio.get_running_loop().time() == began_s, "only the first call waited"

    scenario()


@virtual_time
async def test_the_first_is_looked_at_without_rows_and_used_again() -> None:
    model, near, far, _ = pair()
    near.script = refused
    await model.predict(ROWS)
    near.script = None
    await asyncio.sleep(LOOK_AGAIN_S)
    await model.predict(ROWS)
    assert (near.with_rows, far.with_rows) == (1, 2)
    await model.predict(ROWS)
    assert (near.with_rows, far.with_rows) == (2, 2)


@virtual_time
async def test_a_first_server_that_swallows_questions_holds_up_one_call_a_look() -> None:
    model, near, _, heard = pair()
    near.script = silent
    await model.predict(ROWS)
    await asyncio.sleep(LOOK_AGAIN_S)
    began_s = asyncio.get_running_loop().time()
    await asyncio.gather(*(model.predict(ROWS) for _ in range(5)))
    assert asyncio.get_running_loop().time() - began_s <= LOOK_S
    assert (near.with_rows, heard.passed_over) == (1, ["near"])


@pytest.mark.parametrize("is_far_ill", [False, True])
@virtual_time
async def test_calls_that_hang_at_the_last_one_go_to_the_first_when_it_is_back(
    is_far_ill: bool,
) -> None:
    model, near, far, heard = pair()
    near.script = refused
    if is_far_ill:
        far.script = refused
        with pytest.raises(Unreachable):
            await model.predict(ROWS)
    far.script = silent
    calls = [asyncio.create_task(model.predict(ROWS)) for _ in range(4)]
    await asyncio.sleep(PATIENCE_S + LOOK_AGAIN_S)
    near.script, back_s = None, asyncio.get_running_loop().time()
    await asyncio.gather(*calls)
    assert asyncio.get_running_loop().time() - back_s <= LOOK_AGAIN_S + LOOK_S
    assert heard.passed_over == ["near", "far"]


@virtual_time
async def test_a_last_one_that_takes_long_is_waited_for_while_the_others_are_away() -> None:
    async def slow(_: Sequence[Payload]) -> Answers | None:
        await asyncio.sleep(5 * PATIENCE_S)
        return None

    model, near, far, heard = pair()
    near.script, far.script = refused, slow
    assert len((await model.predict(ROWS)).values) == 2
    assert (len(far.calls), heard.passed_over) == (1, ["near"])


@virtual_time
async def test_rows_that_no_server_answers_do_not_go_round_for_ever() -> None:
    async def never_rows(payloads: Sequence[Payload]) -> Answers | None:
        if payloads:
            await asyncio.sleep(30.0)
            raise NoAnswer("no answer")
        return None

    model, near, far, _ = pair()
    near.script = far.script = never_rows
    with pytest.raises(NoAnswer):
        await model.predict(ROWS)
    assert (near.with_rows, far.with_rows) == (2, 1)


@pytest.mark.parametrize("error", [NoAnswer("the connection broke"), WorkerDied("died")])
@virtual_time
async def test_rows_that_may_be_the_cause_are_not_passed_on(error: Transient) -> None:
    model, near, far, _ = pair()
    near.script = fails_with(error)
    with pytest.raises(type(error)):
        await model.predict(ROWS)
    assert far.calls == []


@virtual_time
async def test_one_that_is_ill_again_and_again_is_passed_over() -> None:
    model, near, far, heard = pair()
    near.script = fails_with(WorkerDied("died"))
    for _ in range(3):
        with pytest.raises(WorkerDied):
            await model.predict(ROWS)
    await model.predict(ROWS)
    assert (len(far.calls), heard.passed_over) == (1, ["near"])


@virtual_time
async def test_one_that_has_too_much_to_do_is_not_passed_over() -> None:
    model, near, far, _ = pair()
    near.script = fails_with(Overloaded("queue full"))
    for _ in range(10):
        with pytest.raises(Overloaded):
            await model.predict(ROWS)
    assert far.calls == []


@virtual_time
async def test_a_replica_that_is_set_wrongly_is_away_and_the_first_one_is_refused() -> None:
    model, near, far, _ = pair()
    near.script, far.script = refused, fails_with(Fatal("no such model"))
    with pytest.raises(Unreachable, match="no such model"):
        await model.predict(ROWS)
    near.script = fails_with(Fatal("no such model"))
    with pytest.raises(Fatal):
        await model.predict(ROWS)


@virtual_time
async def test_it_is_ready_while_one_of_them_is() -> None:
    model, near, far, _ = pair()
    near.script = refused
    await model.predict(ROWS)
    assert await model.ready()
    far.script = refused
    assert not await model.ready()


def test_addresses_of_replicas_are_shown_without_their_secrets() -> None:
    url = "http://user:secret@host:8080/?token=abc"
    cfg = config.Config(model=config.Model(replicas=[url]))
    assert "user:secret" not in str(cfg.masked())
    assert "abc" not in str(cfg.masked())
    assert {"secret", "token=abc"} <= cfg.secrets()
