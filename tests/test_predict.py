"""`penstock predict` and `penstock.predict`, without any service but a model."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest

from penstock import predict, predict_sync, to_pandas
from penstock.commands.predict import RecordTally
from penstock.config import Config, Model, Objects
from penstock.config.sections import Limits
from penstock.errors import EXIT_UNREACHABLE, EXIT_USAGE, Fatal, PenstockError
from penstock.tools.embedded.model_server import EmbeddedModelServer
from tests.support.json_server import json_server
from tests.support.loads import csv
from tests.support.reference_model import numpy_answers, random_rows
from tests.support.waiting import DEADLINE_S, until
from tests.support.warm_start import PENSTOCK


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedModelServer]:
    async with EmbeddedModelServer() as server:
        yield server


class Ended(NamedTuple):
    code: int
    lines: list[dict[str, object]]
    err: str


async def command(
    server: EmbeddedModelServer, folder: Path, *arguments: str, stdin: bytes = b""
) -> Ended:
    process = await start(server, folder, *arguments)
    async with asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate(stdin)
    assert process.returncode is not None
    lines = [orjson.loads(line) for line in out.splitlines()]
    return Ended(process.returncode, lines, err.decode())


async def start(
    server: EmbeddedModelServer, folder: Path, *arguments: str
) -> asyncio.subprocess.Process:
    environ = {name: text for name, text in os.environ.items() if not name.startswith("PENSTOCK_")}
    environ |= {
        "PENSTOCK_MODEL__URL": server.url,
        "PENSTOCK_MODEL__REQUEST": "float32",
        "PENSTOCK_OBJECTS__ENDPOINT_URL": folder.as_uri(),
    }
    return await asyncio.create_subprocess_exec(
        *(*PENSTOCK, "predict", *arguments),
        cwd=folder, env=environ, stdin=PIPE, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip


@pytest.mark.parametrize("how", ["relative", "absolute", "url", "glob", "stdin", "bucket"])
async def test_what_is_read_may_be_here_or_in_a_store(
    server: EmbeddedModelServer, tmp_path: Path, how: str
) -> None:
    rows = random_rows(20)
    file = tmp_path / "bucket" / "a 1.csv"
    file.parent.mkdir()
    file.write_bytes(csv(rows))
    url = {
        "relative": "bucket/a 1.csv",
        "absolute": str(file),
        "url": file.as_uri(),
        "glob": "**/*.csv",
        "stdin": "-",
        "bucket": "s3://bucket/a 1.csv",
    }[how]
    done = await command(server, tmp_path, url, stdin=file.read_bytes() if how == "stdin" else b"")
    assert done.code == 0, done.err
    scores = [line["prediction"]["score"] for line in done.lines]  # type: ignore[index]
    assert scores == pytest.approx([answer["score"] for answer in numpy_answers(rows)], abs=1e-5)
    assert "20 rows of 1 object in" in done.err
    assert "20 predicted" in done.err
    assert len(done.err.splitlines()) == 1, "nothing but the summary"


async def test_an_answer_that_is_an_error_is_code_1_unless_errors_are_allowed(
    server: EmbeddedModelServer, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_bytes(csv(random_rows(3)) + b"not,numbers\n")
    done = await command(server, tmp_path, "x.csv")
    assert done.code == 1
    assert "the first error: " in done.err
    assert "bad_row" in done.err
    assert "3 predicted, 1 rejected (bad_row 1)" in done.err
    assert (await command(server, tmp_path, "x.csv", "--allow-errors")).code == 0


async def test_where_nothing_can_be_read_the_code_is_that_of_the_reason(
    server: EmbeddedModelServer, tmp_path: Path
) -> None:
    done = await command(server, tmp_path, "no.csv", "--allow-errors")
    assert done.code == EXIT_USAGE
    assert "1 object not read to the end (not_found 1)" in done.err
    assert (await command(server, tmp_path, "*.nothing")).code == EXIT_USAGE
    (tmp_path / "x.csv").write_bytes(csv(random_rows(3)))
    assert (await command(server, tmp_path, "no.csv", "x.csv")).code == 1


async def test_a_configured_model_is_asked_by_its_name_and_records_call_it_so(
    server: EmbeddedModelServer, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_bytes(csv(random_rows(3)))
    (tmp_path / "c.toml").write_text(
        '[model]\nname = "away"\n[[models]]\nname = "v2"\nserved_as = "rows"\n'
        f'url = "{server.url}"\nrequest = "json"\n'
    )
    url = (tmp_path / "out").as_uri() + "/{model}.jsonl"
    asked = ("--config", "c.toml", "x.csv", "--model")
    done = await command(server, tmp_path, *asked, "v2", "--output", url)
    assert done.code == 0, done.err
    assert [line["model"] for line in done.lines] == ["v2"]
    assert len((tmp_path / "out" / "v2.jsonl").read_bytes().splitlines()) == 3
    done = await command(server, tmp_path, *asked, "v3")
    assert done.code == EXIT_USAGE
    assert "there is no model 'v3'; did you mean v2" in done.err
    assert "name one of away, v2, or write its URL, as http://" in done.err


async def test_any_server_is_asked_if_its_protocol_is_named(
    server: EmbeddedModelServer, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_text("1,2\n3,4\n")
    async with json_server("/sum", lambda rows: [sum(row) for row in rows]) as sums:
        asked = ("x.csv", "--request", "json", "--model", f"{sums.url}/sum")
        done = await command(server, tmp_path, *asked, "--protocol", "http")
        assert [line["prediction"] for line in done.lines] == [3, 7], done.err
        done = await command(server, tmp_path, *asked)
    assert done.code == EXIT_USAGE
    assert "'http' takes any URL" in done.err


def test_an_object_that_is_away_or_forbidden_has_a_code_of_its_own() -> None:
    for error, code in (("forbidden", EXIT_USAGE), ("unavailable", EXIT_UNREACHABLE)):
        tally = RecordTally(lambda: 0.0)
        tally.take(
            [b'{"row":null,"last":true,"error":{"code":"%b","message":"m"}}' % error.encode()]
        )
        assert tally.exit_code(allow_errors=True) == code


async def test_the_output_appears_when_it_is_complete(
    server: EmbeddedModelServer, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_bytes(csv(random_rows(3)))
    output = tmp_path / "results.jsonl"
    output.write_text("of yesterday\n")
    output.chmod(0o600)
    done = await command(server, tmp_path, "x.csv", "--output", str(output))
    assert (done.code, done.lines) == (0, [])
    assert output.read_bytes().count(b"\n") == 3
    assert output.stat().st_mode & 0o777 == 0o600
    assert names(tmp_path) == ["results.jsonl", "x.csv"]


async def test_an_output_that_cannot_be_is_told_without_a_traceback(
    server: EmbeddedModelServer, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_bytes(csv(random_rows(3)))
    done = await command(server, tmp_path, "x.csv", "--output", "/nodir/x")
    assert done.code == EXIT_USAGE
    assert done.err == "penstock: --output /nodir/x: No such file or directory\n"


async def test_ctrl_c_leaves_the_output_of_before_and_says_so(
    server: EmbeddedModelServer, tmp_path: Path
) -> None:
    output = tmp_path / "results.jsonl"
    output.write_text("of yesterday\n")
    process = await start(server, tmp_path, "-", "--output", str(output))

    async def is_writing() -> bool:
        return len(names(tmp_path)) == 2

    async with asyncio.timeout(DEADLINE_S):
        await until(is_writing, lambda: "no file for the results")
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        err = await process.stderr.read()
        await process.wait()
    assert process.returncode == 130
    assert f"{output} is not written: stopped after 0 records" in err.decode()
    assert output.read_text() == "of yesterday\n"
    assert names(tmp_path) == ["results.jsonl"]


async def test_ctrl_c_says_how_far_it_came(server: EmbeddedModelServer, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(csv(random_rows(2_000)))
    process = await start(server, tmp_path, "x.csv", "-")  # standard input never ends
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.timeout(DEADLINE_S):
        await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = await asyncio.gather(process.stdout.read(), process.stderr.read())
        assert await process.wait() == 130
    assert "stopped after " in err.decode()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://nowhere/*.csv", "nowhere"),
        ("s3://bucket/", "'s3://bucket/**'"),
        ("folder/", "'folder/*'"),
        ("pipe", "- < pipe"),
        ("s3:/bucket/x.csv", "an object is s3://bucket/key"),
    ],
)
async def test_a_url_that_can_name_no_object_is_code_2_and_says_what_to_write(
    server: EmbeddedModelServer, tmp_path: Path, url: str, words: str
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    done = await command(server, tmp_path, url)
    assert done.code == EXIT_USAGE
    assert words in done.err


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def settings(url: str, **more: object) -> Config:
    return Config(model=Model(url=url, request="float32"), **more)  # type: ignore[arg-type]


async def test_a_wrong_setting_is_a_fatal_and_no_group(server: EmbeddedModelServer) -> None:
    unknown = Config(model=Model(url=server.url, name="unknown", request="float32"))
    with pytest.raises(PenstockError) as caught:
        [one async for one in predict("x.csv", config=unknown)]
    assert type(caught.value) is PenstockError
    with pytest.raises(PenstockError, match="no file matches"):
        [one async for one in predict("/no/*.such", config=settings(server.url))]


@pytest.mark.parametrize(
    ("urls", "said"),
    [
        (["folder"], "is a folder"),
        (["a.csv", "folder"], "is a folder"),
        (["a.csv", "no/*"], "no file matches"),
    ],
)
async def test_what_the_user_must_correct_is_said_before_the_model_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, urls: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.csv").write_text("1,2\n")
    async with asyncio.timeout(30):  # limits.start_ms is 60 s
        with pytest.raises(PenstockError, match=said):
            [one async for one in predict(urls, config=settings("http://127.0.0.1:9"))]


@pytest.mark.parametrize("missing", ["model", "store"])
async def test_a_service_that_is_away_at_the_start_ends_it_after_start_ms(
    server: EmbeddedModelServer, missing: str
) -> None:
    nowhere = "http://127.0.0.1:9"
    cfg = settings(nowhere if missing == "model" else server.url, limits=Limits(start_ms=300))
    if missing == "store":
        cfg = settings(
            server.url,
            limits=Limits(start_ms=300),
            objects=Objects(endpoint_url=nowhere, key="k", secret="s"),
        )
    with pytest.raises(PenstockError, match=r"did not answer for 0\.3 s"):
        [one async for one in predict("s3://b/x.csv" if missing == "store" else "-", config=cfg)]


async def test_results_come_at_once_and_as_a_table_where_a_loop_is_running(
    server: EmbeddedModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = random_rows(4)
    file = tmp_path / "x.csv"
    file.write_bytes(csv(rows) + b"bad\n")

    def in_a_notebook() -> object:
        return predict_sync(str(file), config=settings(server.url))

    results = await asyncio.to_thread(in_a_notebook)
    assert isinstance(results, list)
    table = results.to_arrow()  # type: ignore[attr-defined]
    assert table.column("row").to_pylist() == [0, 1, 2, 3, 4]
    assert table.column("key").to_pylist() == [str(file)] * 5
    assert table.column("error").to_pylist() == [None] * 4 + ["bad_row"]
    scores = [answer["score"] for answer in numpy_answers(rows)]
    assert table.column("prediction.score").to_pylist()[:4] == pytest.approx(scores, abs=1e-5)
    assert table.column("prediction.score").to_pylist()[4] is None
    assert list(to_pandas(results)["row"]) == [0, 1, 2, 3, 4]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(Fatal, match=r"pip install .*\[pandas\]'"):
        to_pandas(results)


def test_a_failure_of_the_synchronous_call_is_raised_in_it() -> None:
    with pytest.raises(PenstockError, match="did not answer"):
        predict_sync("-", config=settings("http://127.0.0.1:9", limits=Limits(start_ms=200)))


async def test_an_output_that_is_a_url_gets_an_object_for_each(
    server: EmbeddedModelServer, tmp_path: Path
) -> None:
    for name in ("x", "y"):
        (tmp_path / f"{name}.csv").write_bytes(csv(random_rows(3, seed=1)))
    written = tmp_path / "out"
    done = await command(
        server, tmp_path, f"{tmp_path}/*.csv", "--output", f"{written.as_uri()}/{{key}}.jsonl"
    )
    assert (done.code, len(done.lines)) == (0, 2)
    assert "6 rows of 2 objects" in done.err
    for line, name in zip(done.lines, ("x", "y"), strict=True):
        path = written / str(tmp_path).lstrip("/") / f"{name}.csv.jsonl"
        assert line["result"]["url"] == path.as_uri()  # type: ignore[index]
        assert [orjson.loads(text)["row"] for text in path.read_bytes().splitlines()] == [0, 1, 2]


async def test_one_object_s_result_has_the_name_that_is_given(
    server: EmbeddedModelServer, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_bytes(csv(random_rows(3, seed=1)))
    url = f"{tmp_path.as_uri()}/named.csv"
    done = await command(server, tmp_path, f"{tmp_path}/x.csv", "--output", url)
    assert done.code == 0
    assert len((tmp_path / "named.csv").read_text().splitlines()) == 4
    done = await command(server, tmp_path, f"{tmp_path}/*.csv", "--output", url)
    assert done.code == EXIT_USAGE
    assert "names one object for many" in done.err
