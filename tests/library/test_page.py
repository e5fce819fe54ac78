"""docs/python.md: every block of code runs, against servers that answer as the page says."""

import ast
import asyncio
import contextlib
import io
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from penstock.config import Config, load
from penstock.tools.embedded.model_server import EmbeddedModelServer
from tests.support.json_server import json_server
from tests.support.loads import csv
from tests.support.reference_model import numpy_answers, random_rows

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
JOBS = [block for block in BLOCKS if "__main__" in block]
(SAID,) = re.findall(r"^```\n(http.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def means(rows: list[list[float]]) -> dict[str, list[dict[str, float]]]:
    return {"means": [{"mean": sum(row) / len(row)} for row in rows]}


@pytest.fixture
async def urls() -> AsyncIterator[dict[str, str]]:
    """The servers of the page, and where they are here."""
    async with EmbeddedModelServer() as server, json_server("/mean", means) as mean:
        yield {"http://localhost:8080": server.url, "http://localhost:9100": mean.url}


@pytest.fixture
def readings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "readings").mkdir()
    return tmp_path / "readings"


def here(block: str, urls: dict[str, str]) -> str:
    for name, url in urls.items():
        block = block.replace(name, url)
    return block


def ran(blocks: list[str]) -> tuple[dict[str, Any], str]:
    """The names that the blocks leave, and what they print."""
    names: dict[str, Any] = {}
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)
    return names, out.getvalue()


async def test_the_blocks_about_one_s_own_rows_run(urls: dict[str, str], readings: Path) -> None:
    rows = random_rows(20)
    (readings / "a.csv").write_bytes(csv(rows))
    blocks = [here(block, urls) for block in BLOCKS if "mean" not in block and block not in JOBS]
    names, out = await asyncio.to_thread(ran, blocks)
    expected = [answer["score"] for answer in numpy_answers(rows)]
    assert list(names["results"].to_pandas()["prediction.score"]) == pytest.approx(
        expected, abs=1e-5
    )
    scores = ast.literal_eval(out.splitlines()[-1])
    assert [row for _, row, _ in scores] == list(range(20))
    assert [score for *_, score in scores] == pytest.approx(expected, abs=1e-5)
    assert isinstance(load(names["config"]), Config)


async def test_the_blocks_about_any_model_run(urls: dict[str, str], readings: Path) -> None:
    (readings / "a.csv").write_text("sensor,ts,x,y\np,1,1,2\nq,2,3,4\np,3,5,6\n")
    blocks = [BLOCKS[0], *(block for block in BLOCKS if "mean" in block)]
    # Of the first only the import is wanted: its model takes other rows.
    blocks[0] = blocks[0].partition("\n")[0]
    names, out = await asyncio.to_thread(ran, [here(block, urls) for block in blocks])
    assert dict(names["hottest"]) == {"p": 5.5, "q": 3.5}
    assert names["failed"].empty
    assert list(names["frame"]["ts"]) == [1, 2, 3]
    assert out == here(SAID, urls), "the error of the page"


def function_of(block: str, urls: dict[str, str]) -> Any:
    """The function of a job, without the engine that would call it; all of the block compiles."""
    compile(block, str(PAGE), "exec")
    engines = ("ray", "pyspark")
    body = [
        node
        for node in ast.parse(here(block, urls)).body
        if not isinstance(node, ast.If)
        and not any(engine in ast.unparse(node) for engine in engines)
    ]
    names: dict[str, Any] = {}
    exec(compile(ast.Module(body, []), str(PAGE), "exec"), names)
    return names["answered"]


async def test_the_functions_of_jobs_answer_batches(urls: dict[str, str], readings: Path) -> None:
    rows = random_rows(6)
    for number in (0, 1):
        (readings / f"{number}.csv").write_bytes(csv(rows[3 * number :][:3]))
    files = [str(readings / name) for name in ("0.csv", "1.csv", "no.csv")]
    of_ray, of_spark = (function_of(block, urls) for block in JOBS)

    def frames() -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"url": files})

    tables = [
        await asyncio.to_thread(of_ray, pa.table({"url": files})),
        pa.Table.from_pandas((await asyncio.to_thread(lambda: list(of_spark(frames()))))[0]),
    ]
    expected = [answer["score"] for answer in numpy_answers(rows)]
    for table in tables:
        assert table["score"].to_pylist()[:6] == pytest.approx(expected, abs=1e-5)
        assert table["error"].to_pylist() == [None] * 6 + ["not_found"]
    assert tables[0]["row"].to_pylist() == [0, 1, 2, 0, 1, 2, None]
    failed = await asyncio.to_thread(of_ray, pa.table({"url": ["no.csv"]}))
    assert failed.schema == tables[0].schema, "also of a batch without predictions"


def test_every_block_is_run_by_a_test() -> None:
    assert len(JOBS) == 2
    assert all("answered" in block for block in JOBS)
    assert len(BLOCKS) == 9
