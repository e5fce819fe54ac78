"""`predict` as Python programs call it: other protocols, kept columns, errors, progress."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import PenstockError, Prediction, predict, predict_sync
from penstock.config import Config
from penstock.library.python_api import Predictions, to_arrow, to_pandas, to_polars
from penstock.messages.prediction import Source
from tests.support.json_server import json_server
from tests.support.waiting import DEADLINE_S, until


def mean(rows: list[list[float]]) -> list[dict[str, float]]:
    return [{"mean": sum(row) / len(row)} for row in rows]


def write(folder: Path) -> list[str]:
    """Two files of two numbers and a name."""
    for name, first in (("a", 1), ("b", 5)):
        text = f"id,x,y\n{name}1,{first},{first + 1}\n{name}2,{first + 2},{first + 3}\n"
        (folder / f"{name}.csv").write_text(text)
    return [str(folder / "a.csv"), str(folder / "b.csv")]


async def test_any_json_server_is_asked_and_columns_are_kept_in_every_table(
    tmp_path: Path,
) -> None:
    files = write(tmp_path)
    async with json_server("/mean", mean) as server:
        found = await asyncio.to_thread(
            predict_sync,
            files,
            model=f"{server.url}/mean",
            protocol="http",
            keep=["id"],
            config={"rows": {"columns": ["x", "y"]}},
        )
    assert [result.prediction["mean"] for result in found] == [1.5, 3.5, 5.5, 7.5]
    assert [result.columns for result in found] == [{"id": id} for id in ("a1", "a2", "b1", "b2")]
    # `id` is the record's own.
    kept = ["a1", "a2", "b1", "b2"]
    assert found.to_arrow().column("columns.id").to_pylist() == kept
    assert list(found.to_pandas()["columns.id"]) == kept
    assert found.to_polars()["columns.id"].to_list() == kept
    assert found.to_polars()["prediction.mean"].to_list() == [1.5, 3.5, 5.5, 7.5]


def record(**more: Any) -> Prediction:
    fields: dict[str, Any] = {"row": 0, "prediction": 1} | more
    return Prediction(
        v=1, id="a", stream="s", source=Source("t", 0, 0), object=None, model="m", **fields
    )


def test_a_kept_column_has_its_own_name_unless_the_table_has_it_already() -> None:
    rows = [
        record(columns={"ts": 5, "key": "k", "mixed": 1}, event_time=7),
        record(row=None, prediction=None),
        record(columns={"ts": 2**80, "key": "l", "mixed": "x"}, event_time="at noon"),
    ]
    table = to_arrow(rows)
    assert table.column_names[-3:] == ["ts", "columns.key", "mixed"]
    assert table.column("columns.key").to_pylist() == ["k", None, "l"]
    assert table.column("mixed").to_pylist() == ["1", None, '"x"']
    assert table.column("ts").to_pylist() == ["5", None, str(2**80)]
    assert table.column("event_time").to_pylist() == ["7", None, '"at noon"']
    assert list(to_pandas(rows).columns) == table.column_names == to_polars(rows).columns
    assert Predictions(rows[:1]).to_arrow().column("ts").to_pylist() == [5]


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("x.csv", {"model": "http://h:1/mean"}, "'http' takes any URL"),
    ("x.csv", {"config": {"rows": {"kep": []}}}, "config: no key rows.kep; did you mean keep?"),
    ("x.csv", {"request": "flaot32"}, "flaot32"),
    ("x.csv", {"config": {"limits": {"start_ms": 300}}}, "did not answer for 0.3 s"),
]


@pytest.mark.parametrize(("url", "arguments", "words"), WRONG)
@pytest.mark.parametrize("is_sync", [True, False])
async def test_an_error_has_one_message_and_nothing_of_what_is_below(
    url: str,
    arguments: dict[str, Any],
    words: str,
    is_sync: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_MODEL__URL", "http://127.0.0.1:9")

    async def call() -> object:
        if is_sync:
            return predict_sync(url, **arguments)
        return [one async for one in predict(url, **arguments)]

    with pytest.raises(PenstockError) as caught:
        await call()
    error = caught.value
    assert words in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__
    ours = Path(penstock.__file__).parent
    frames = traceback.extract_tb(error.__traceback__)
    assert {
        Path(frame.filename).name for frame in frames if ours in Path(frame.filename).parents
    } == {"python_api.py"}
    assert error._render_traceback_() == [f"PenstockError: {error}"]
    assert error.__context__ is None


def test_help_tells_every_argument_and_both_calls_take_the_same() -> None:
    names = ["objects", "model", "protocol", "request", "keep", "config", "progress"]
    assert list(inspect.signature(predict).parameters) == names
    assert list(inspect.signature(predict_sync).parameters) == names
    assert predict.__doc__ is not None
    assert all(f"\n    {name}: " in predict.__doc__ for name in names)
    assert set(penstock.__all__) <= set(dir(penstock))
    assert all(getattr(penstock, name) is not None for name in penstock.__all__)


def run(code: str, cwd: Path | None = None, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | environ, text=True, cwd=cwd,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.parametrize("asked", [True, False])
async def test_progress_is_shown_if_it_is_asked_for(tmp_path: Path, asked: bool) -> None:
    files = write(tmp_path)
    async with json_server("/mean", mean) as server:
        code = (
            f"from penstock import predict_sync; predict_sync({files!r}, protocol='http', "
            f"model='{server.url}/mean', keep=['id'], config={{'rows': {{'columns': ['x']}}}}, "
            f"progress={asked})"
        )
        # rich then takes the pipe for a terminal.
        process = run(code, FORCE_COLOR="1", COLUMNS="80")
        _, err = await asyncio.to_thread(process.communicate, timeout=DEADLINE_S)
    assert process.returncode == 0, err
    assert ("objects, 4 rows" in err) == asked


async def test_an_interrupt_stops_the_work_and_not_only_the_waiting(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,2\n")
    code = (
        "import threading\n"
        "from penstock import predict_sync\n"
        "try:\n"
        "    predict_sync('x.csv', '-', model='{url}/mean', protocol='http')\n"
        "except KeyboardInterrupt:\n"
        "    print([thread.name for thread in threading.enumerate()])\n"
    )
    async with json_server("/mean", mean) as server:
        process = run(code.replace("{url}", server.url), cwd=tmp_path)  # whose input does not end

        async def is_asked() -> bool:
            return bool(server.posted)

        await until(is_asked, lambda: "the model was not asked")
        process.send_signal(signal.SIGINT)
        out, err = await asyncio.to_thread(process.communicate, timeout=DEADLINE_S)
    assert "predict_sync" not in out, err
    assert out.startswith("['MainThread'"), err


def test_a_configuration_object_is_taken_as_it_is() -> None:
    with pytest.raises(PenstockError, match="no URL of TorchServe"):
        predict_sync("x.csv", model="http://h", config=Config())
