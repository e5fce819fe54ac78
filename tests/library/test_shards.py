"""Several processes divide the objects: each is told its part, and skips what has a result."""

import asyncio
import gzip
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from aiohttp import web

from penstock.adapters.inputs.left_out_objects import Shard
from penstock.errors import EXIT_USAGE, Fatal
from penstock.library.model_and_shard import shard_of
from penstock.messages.reference import Reference
from penstock.tools.embedded.model_server import EmbeddedModelServer
from tests.support.loads import csv
from tests.support.reference_model import numpy_answers, random_rows
from tests.support.waiting import DEADLINE_S, until
from tests.support.warm_start import PENSTOCK

KUBERNETES = {"JOB_COMPLETION_INDEX": "2"}
AWS = {"AWS_BATCH_JOB_ARRAY_INDEX": "2"}


def slurm(one: int, count: int, first: int, last: int) -> dict[str, str]:
    found = {"ID": one, "COUNT": count, "MIN": first, "MAX": last}
    return {f"SLURM_ARRAY_TASK_{name}": str(number) for name, number in found.items()}


@pytest.mark.parametrize(
    ("text", "environ", "shard"),
    [
        ("0/4", {}, (0, 4)),
        ("3/4", KUBERNETES, (3, 4)),
        ("auto/4", KUBERNETES, (2, 4)),
        ("auto/4", AWS, (2, 4)),
        ("auto", AWS | {"AWS_BATCH_JOB_ARRAY_SIZE": "5"}, (2, 5)),
        ("auto", slurm(0, 3, 0, 2), (0, 3)),
        ("auto", slurm(3, 3, 1, 3), (2, 3)),
        ("auto", slurm(5, 4, 1, 7), (2, 4)),
        ("auto/4", slurm(5, 4, 1, 7), (2, 4)),
        ("auto", slurm(9, 1, 9, 9), (0, 1)),
        ("auto", {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "2"}, (1, 2)),
    ],
)
def test_a_shard_is_told_by_the_option_or_by_the_scheduler(
    text: str, environ: dict[str, str], shard: tuple[int, int]
) -> None:
    assert shard_of(text, environ) == shard


@pytest.mark.parametrize(
    ("text", "environ", "words"),
    [
        ("4/4", {}, "counts from 0 to N - 1, and it is 4 of 4"),
        ("1", {}, "write I/N"),
        ("-1/4", {}, "write I/N"),
        ("auto/4", {}, "there is no JOB_COMPLETION_INDEX"),
        ("auto", KUBERNETES, "write auto/N"),
        ("auto/2", KUBERNETES, "it is 2 of 2"),
        ("auto/3", slurm(1, 4, 0, 3), "there are 4"),
        ("auto", slurm(1, 3, 1, 6), "not evenly spaced"),
        ("auto", {"SLURM_ARRAY_TASK_ID": "1"}, "no SLURM_ARRAY_TASK_COUNT"),
        ("auto/4", {"JOB_COMPLETION_INDEX": "two"}, "is no number"),
    ],
)
def test_a_shard_that_cannot_be_is_told(text: str, environ: dict[str, str], words: str) -> None:
    with pytest.raises(Fatal) as caught:
        shard_of(text, environ)
    assert caught.value.exit_code == EXIT_USAGE
    assert words in str(caught.value)


def test_every_object_is_in_one_shard_and_shards_are_of_like_size() -> None:
    references = [Reference(bucket="b", key=f"site-{n % 7}/{n:06}.csv") for n in range(4_000)]
    found = [[Shard(one, 4).has(each) for one in range(4)] for each in references]
    assert all(sum(row) == 1 for row in found)
    sizes = Counter(row.index(True) for row in found)
    assert all(900 < size < 1_100 for size in sizes.values())
    # As earlier processes had it: a later version of ours must not divide in another way.
    assert [row.index(True) for row in found[:8]] == PINNED


PINNED = [0, 3, 2, 1, 0, 3, 2, 1]


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedModelServer]:
    async with EmbeddedModelServer() as server:
        yield server


async def start(server: EmbeddedModelServer, folder: Path, *arguments: str) -> Process:
    environ = {name: text for name, text in os.environ.items() if not name.startswith("PENSTOCK_")}
    environ |= {"PENSTOCK_MODEL__URL": server.url, "PENSTOCK_MODEL__REQUEST": "float32"}
    environ["PENSTOCK_WINDOW__MAX_ROWS"] = str(ROWS)
    return await asyncio.create_subprocess_exec(
        *(*PENSTOCK, "predict", *arguments),
        cwd=folder, env=environ, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip


async def ended(process: Process) -> tuple[int | None, str, str]:
    async with asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


class Stuck(EmbeddedModelServer):
    """It answers some calls, and leaves all later ones without an answer."""

    ANSWERED = 12

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def _predictions(self, request: web.Request) -> web.StreamResponse:
        self.calls += 1
        if self.calls > self.ANSWERED:
            await asyncio.Event().wait()
        return await super()._predictions(request)


OBJECTS, ROWS, SHARDS = 120, 40, 4


async def test_four_processes_of_which_two_are_killed_answer_each_object_once_and_whole(
    server: EmbeddedModelServer, tmp_path: Path
) -> None:
    rows = random_rows(OBJECTS * ROWS)
    (tmp_path / "in").mkdir()
    for number in range(OBJECTS):
        (tmp_path / "in" / f"{number}.csv").write_bytes(csv(rows[number * ROWS :][:ROWS]))
    out = tmp_path / "out"
    template = f"{out.as_uri()}/{{key}}.jsonl"
    asked = ("in/*.csv", "--output", template, "--skip-existing", "--shard")

    def results() -> list[Path]:
        return sorted(out.rglob("*.jsonl"))

    async def is_under_way() -> bool:
        return stuck.calls > Stuck.ANSWERED

    async with Stuck() as stuck:
        shards = [
            await start(stuck if n < 2 else server, tmp_path, *asked, f"{n}/{SHARDS}")
            for n in range(SHARDS)
        ]
        # At once: a minute without an answer would end them before they are killed.
        await until(is_under_way, lambda: "no results of those to be killed")
        for process in shards[:2]:
            process.send_signal(signal.SIGKILL)
        first = [await ended(process) for process in shards]
    assert [code for code, *_ in first] == [-signal.SIGKILL] * 2 + [0] * 2
    of_the_killed = OBJECTS - len(results())
    again = [await ended(await start(server, tmp_path, *asked, f"{n}/{SHARDS}")) for n in range(4)]
    assert 0 < of_the_killed < OBJECTS / 2 + 20
    assert [code for code, *_ in again] == [0] * SHARDS, again
    assert sum(len(out.splitlines()) for _, out, _ in again) == of_the_killed
    assert all("skipped: their results are there" in err for *_, err in again[2:])
    assert all("0 rows of 0 objects" in err for *_, err in again[2:])
    written = {path.name: path.read_bytes().splitlines() for path in results()}
    assert set(written) == {f"{number}.csv.jsonl" for number in range(OBJECTS)}
    assert len(results()) == OBJECTS
    assert not list(out.rglob("*.part"))
    for number in range(OBJECTS):
        lines = [orjson.loads(line) for line in written[f"{number}.csv.jsonl"]]
        assert [line["row"] for line in lines] == list(range(ROWS))
        expected = numpy_answers(rows[number * ROWS :][:ROWS])
        scores = [line["prediction"]["score"] for line in lines]
        assert scores == pytest.approx([one["score"] for one in expected], abs=1e-5)


async def test_an_object_that_breaks_is_not_done(
    server: EmbeddedModelServer, tmp_path: Path
) -> None:
    """Else a later run with --skip-existing would take its first rows for the whole."""
    whole = gzip.compress(csv(random_rows(4_000)))
    file = tmp_path / "x.csv.gz"
    file.write_bytes(whole[: len(whole) * 2 // 3])
    result = tmp_path / "x.csv.gz.jsonl"
    asked = ("x.csv.gz", "--output", f"{tmp_path.as_uri()}/x.csv.gz.jsonl", "--skip-existing")
    for options in (asked[:-1], asked):
        code, out, err = await ended(await start(server, tmp_path, *options))
        record = orjson.loads(out)
        assert (code, record["row"], record["error"]["code"]) == (1, None, "bad_format"), err
        assert "result" not in record
        assert not result.exists()
    file.write_bytes(whole)
    code, out, err = await ended(await start(server, tmp_path, *asked))
    assert (code, orjson.loads(out)["result"]["rows"]) == (0, 4_000), err
    assert len(result.read_bytes().splitlines()) == 4_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--skip-existing",), "--skip-existing needs --output URL"),
        (
            ("--skip-existing", "--output", "s3://r/{date}/{key}.jsonl"),
            "{date} differs from process to process",
        ),
        (
            ("--shard", "0/2", "--output", "s3://r/{partition}-{offset}.jsonl"),
            "{offset} differs from process to process",
        ),
        (("--shard", "2/2"), "--shard 2/2: I counts from 0"),
    ],
)
async def test_what_would_not_prove_that_an_object_is_done_is_refused(
    server: EmbeddedModelServer, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    code, _, err = await ended(await start(server, tmp_path, "x.csv", *arguments))
    assert code == EXIT_USAGE
    assert words in err
