"""Real model servers beside TorchServe: the contract, the main job, rows that make a model raise.

What cannot be had on this machine is skipped, with the reason.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson
import pytest

from penstock import config
from penstock.adapters.model_servers.protocols import open_model
from penstock.errors import EXIT_USAGE, Fatal, Rejected
from penstock.ports import Model
from tests.adapters.model_servers.contract import ModelContract, expect, payload
from tests.support.loads import Load, assert_predicted, csv, places_of
from tests.support.reference_model import numpy_answers, random_rows
from tests.support.services import Services, Topics, Unavailable, model_server
from tests.support.topic_tools import Broker, Message
from tests.support.worker import environment, penstock, running_worker

pytestmark = pytest.mark.model_servers("triton", "mlserver", "kserve", "litserve")

ROWS = 4_000
POISON_EVERY = 500
# What makes the model `strict` raise, as the first number of a row.
RAISES = -666.0
CANARY = str([0.5] * 16)


@dataclass(frozen=True)
class Way:
    """A server, one of its ports, and the settings that speak to it."""

    port: str
    settings: dict[str, Any]
    forms: tuple[str, ...] = ("float32", "json")
    url: str = "http://{}"

    def __str__(self) -> str:
        return f"{self.port}-{self.settings['protocol']}"

    def model(self, name: str = "rows", **more: Any) -> dict[str, Any]:
        try:
            address = model_server(self.port)
        except Unavailable as missing:
            pytest.skip(str(missing))
        return {"url": self.url.format(address), "name": name} | self.settings | more


OIP = {"protocol": "oip"}
GRPC = {"protocol": "oip-grpc"}
LITSERVE = {"protocol": "http", "preset": "litserve", "path": "/{name}"}
WAYS = [
    *[Way(port, OIP) for port in ("triton", "mlserver", "kserve")],
    *[Way(f"{port}_grpc", GRPC, url="grpc://{}") for port in ("triton", "mlserver", "kserve")],
    Way("kserve", {"protocol": "http", "preset": "kserve-v1"}, ("json", "instances")),
    Way("litserve", LITSERVE, ("json",)),
]


@pytest.fixture(params=WAYS, ids=str)
def way(request: pytest.FixtureRequest, services: Services) -> Way:
    chosen: Way = request.param
    return chosen


def connect(settings: dict[str, Any]) -> Model:
    return open_model(config.Config(model=msgspec.convert(settings, config.Model)))


def variables(settings: dict[str, Any]) -> dict[str, str]:
    return {f"MODEL__{key.upper()}": str(value) for key, value in settings.items()}


class TestServer(ModelContract):
    @pytest.fixture(params=["float32", "json", "instances"])
    def form(self, way: Way, request: pytest.FixtureRequest) -> str:
        chosen: str = request.param
        if chosen not in way.forms:
            pytest.skip(f"{way} is not asked in the form {chosen}")
        return chosen

    @pytest.fixture
    async def model(self, way: Way, form: str) -> AsyncIterator[Model]:
        model = connect(way.model(request=form))
        yield model
        await model.aclose()


async def test_a_request_that_the_model_refuses_leaves_the_next_one_unharmed(way: Way) -> None:
    model = connect(way.model("strict", request=way.forms[0]))
    rows = random_rows(6)
    sick = rows.copy()
    sick[2, 0] = RAISES
    for _ in range(5):
        expect(await model.predict([payload(rows, way.forms[0])]), rows)
        with pytest.raises(Rejected):
            await model.predict([payload(sick, way.forms[0])])
    await model.aclose()


async def test_a_model_that_is_not_there_is_a_usage_error(way: Way) -> None:
    model = connect(way.model("no-such-model"))
    with pytest.raises(Fatal, match=r"model\.name") as caught:
        await model.predict([])
    assert caught.value.exit_code == EXIT_USAGE
    await model.aclose()


async def test_every_row_of_40_archives_is_answered_once_in_order_and_committed(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker, way: Way
) -> None:
    load = Load(40, rows=700)
    load.store(s3, bucket)
    # More than Triton takes, which says so.
    model = variables(way.model(request=way.forms[0])) | {"WINDOW__MAX_ROWS": "2000"}
    environ = environment(services, topics, **model)
    async with running_worker(environ) as worker:
        await broker.publish(topics.input, load.messages(bucket))
        await broker.until_committed(topics.input, topics.input, load.ends)
        assert await worker.stop() == 0, worker.said
    output = await broker.records(topics.output)
    assert places_of(output) == load.places(topics.input)
    assert_predicted(output, load.answers(topics.input, numpy_answers(load.rows)))
    assert await broker.committed(topics.input, topics.input) == load.ends
    assert sum((await broker.ends(topics.dlq)).values()) == 0


async def test_exactly_the_rows_that_make_the_model_raise_are_rejected(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker, way: Way
) -> None:
    rows = random_rows(ROWS)
    bad = list(range(POISON_EVERY // 2, ROWS, POISON_EVERY))
    sick = rows.copy()
    sick[bad, 0] = RAISES
    s3.put_object(Bucket=bucket, Key="sick.csv", Body=csv(sick))
    model = variables(way.model("strict", request=way.forms[0], canary=CANARY))
    async with running_worker(environment(services, topics, **model)) as worker:
        await worker.ready()
        await broker.publish(topics.input, [Message({"bucket": bucket, "key": "sick.csv"})])
        await broker.until_committed(topics.input, topics.input, {0: 1})
        assert await worker.stop() == 0, worker.said
    records = (await broker.records(topics.output))[0]
    documents = [orjson.loads(record.value) for record in records]
    rejected = [document["row"] for document in documents if "error" in document]
    assert (len(documents), rejected) == (ROWS, bad)
    assert {document["error"]["code"] for document in documents if "error" in document} == {
        "model_rejected"
    }
    expected = numpy_answers(rows)
    for document in documents:
        if "error" not in document:
            answer = expected[document["row"]]
            assert document["prediction"]["label"] == answer["label"]
            assert document["prediction"]["score"] == pytest.approx(answer["score"], abs=1e-5)


def _triton(protocol: str) -> Way:
    return Way("triton", OIP) if protocol == "oip" else Way("triton_grpc", GRPC, url="grpc://{}")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"MODEL__CANARY": str([0.5] * 12)}, "the model wants FP32 [-1, 16], the rows have 12"),
        (
            {"ROWS__COLUMNS": ",".join(map(str, range(12)))},
            "the model wants FP32 [-1, 16], the rows have 12",
        ),
        ({"MODEL__NAME": "no-such-model"}, "model.name"),
        ({"MODEL__VERSION": "77"}, "model.version"),
    ],
    ids=["canary", "columns", "name", "version"],
)
@pytest.mark.parametrize("protocol", ["oip", "oip-grpc"])
async def test_a_worker_knows_from_the_server_what_does_not_fit_and_ends_at_the_start(
    services: Services, topics: Topics, protocol: str, changes: dict[str, str], words: str
) -> None:
    model = variables(_triton(protocol).model(request="float32")) | changes
    async with running_worker(environment(services, topics, **model)) as worker:
        worker.may_end()
        assert await worker.ended() == EXIT_USAGE
        assert words in worker.said


@pytest.mark.parametrize("protocol", ["oip", "oip-grpc"])
async def test_the_doctor_says_what_the_model_wants(
    services: Services, topics: Topics, protocol: str
) -> None:
    model = variables(_triton(protocol).model(request="float32"))
    environ = environment(services, topics, **model, WINDOW__MAX_ROWS="2000")
    ended = await penstock("doctor", environ=environ)
    assert ended.code == 0, ended.stdout
    wants = "the model wants FP32 [-1, 16], at most 512 rows a request; window.max_rows = 2000 is"
    assert wants in ended.stdout.decode()
