"""`penstock config --init`: the file of any answers passes `penstock lint`, and so do its hints."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock import config
from penstock.commands.root import cli
from penstock.config.starter import PROTOCOLS, StarterAnswers, starter
from penstock.core.routing.stream_keys import KeyTimes
from penstock.errors import Fatal
from penstock.formats.registry import claim_of
from penstock.messages.reference import Reference
from penstock.settings.inputs import row_options
from penstock.tools.lint import lint
from tests.formats.picture_bodies import jpeg
from tests.formats.recordings import video

STORES = (
    "s3://sensors",
    "http://minio:9000/sensors/site-1",
    "gs://sensors",
    "az://sensors",
    "file:///data/sensors",
)
MODELS = (
    "http://ts:8080/predictions/rows",
    "http://ts:8080/predictions/rows/2.0",
    "http://triton:8000/v2/models/digits",
    "grpc://triton:8001/digits oip-grpc",
    "http://tf:8501/v1/models/digits:predict",
    "http://tf:8501/digits tf-serving",
    "http://mlflow:5000/invocations",
    "http://own:9000/score",
    *(f"http://own:9000 {protocol}" for protocol in PROTOCOLS),
)


def linted(folder: Path, text: str) -> list[str]:
    file = folder / "penstock.toml"
    file.write_text(text)
    return [str(one) for one in lint(file, {}, ())]


@pytest.mark.parametrize("store", STORES)
def test_the_file_of_any_answers_passes_lint(tmp_path: Path, store: str) -> None:
    for model in MODELS:
        assert linted(tmp_path, starter(StarterAnswers(store=store, model=model))) == [], model


@pytest.mark.parametrize(
    "rows", ["auto json", "csv float32", "image", "text bytes", "parquet arrow"]
)
def test_rows_pass_lint_and_opaque_ones_are_sent_as_bytes(tmp_path: Path, rows: str) -> None:
    text = starter(StarterAnswers(rows=rows))
    assert linted(tmp_path, text) == []
    sent = tomllib.loads(text)["model"]["request"]
    assert sent == (rows.split()[1] if " " in rows else "bytes")


@pytest.mark.parametrize(
    ("rows", "formats"),
    [
        ("pictures", {"image"}),
        ("films", {"video"}),
        ("both", {"image", "video"}),
        ("both b64", {"image", "video"}),
    ],
)
def test_what_cameras_write_is_read_as_they_were_said_to(rows: str, formats: set[str]) -> None:
    """With "both", each object by its name and first bytes."""
    cfg = config.load(tomllib.loads(starter(StarterAnswers(rows=rows))), {})
    options, read = row_options(cfg), set()
    for key, data in (("a.jpg", jpeg(4, 3)), ("a.mp4", video(3))):
        format = claim_of(key, options.format).format_of(data, options)
        assert format is not None
        read.add(format.name)
    assert read == formats


def test_what_the_url_of_a_model_tells_is_set() -> None:
    def model(answer: str) -> dict[str, str]:
        keys: dict[str, str] = tomllib.loads(starter(StarterAnswers(model=answer)))["model"]
        return {key: value for key, value in keys.items() if key != "request"}

    assert model("http://ts:8080/predictions/rows/2.0") == {
        "protocol": "torchserve",
        "url": "http://ts:8080",
        "name": "rows",
        "version": "2.0",
    }
    assert model("http://t:8000/v2/models/a/infer") == {
        "protocol": "oip",
        "url": "http://t:8000",
        "name": "a",
    }
    assert model("http://gate/east/v2/models/a%20b") == {
        "protocol": "oip",
        "url": "http://gate/east",
        "name": "a b",
    }
    for grpc in (
        "grpc://t:8001/v2/models/a oip-grpc",
        "grpc://t:8001/v2/models/a",
        "grpc://t:8001/a",
    ):
        assert model(grpc) == {"protocol": "oip-grpc", "url": "grpc://t:8001", "name": "a"}
    assert model("http://own:9/score") == {
        "protocol": "http",
        "url": "http://own:9",
        "path": "/score",
    }
    assert model("http://tf:8501/a tf-serving")["preset"] == "tf-serving"


def test_hints_can_be_uncommented(tmp_path: Path) -> None:
    """Each alone, as the columns of one file may not fit another."""
    text = starter(StarterAnswers())
    hints = re.findall(r"^# ([a-z0-9_]+ = .*)$", text, re.MULTILINE)
    assert len(hints) >= 12
    for hint in hints:
        assert linted(tmp_path, text.replace(f"# {hint}", hint)) == [], hint


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (StarterAnswers(kafka="localhost"), "SERVER:PORT"),
        (StarterAnswers(store="sensors"), "s3://BUCKET"),
        (StarterAnswers(model="ts:8080"), "URL [PROTOCOL]"),
        (StarterAnswers(model="http://ts:8080 torch"), "torchserve"),
        (StarterAnswers(model="grpc://t:8001/a oip"), "grpc://HOST:PORT/NAME"),
        (StarterAnswers(rows="a b c"), "FORMAT [REQUEST]"),
    ],
)
def test_an_answer_that_cannot_be_read_is_refused_with_an_example(
    answers: StarterAnswers, says: str
) -> None:
    with pytest.raises(Fatal, match=re.escape(says)) as refused:
        starter(answers)
    assert "for example" in str(refused.value)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "kafka", "says"),
    [
        ("mine.toml", "no-topic", "SERVER:PORT"),
        ("no-folder/mine.toml", "kafka-1:9092/objects", "No such file or directory"),
    ],
)
def test_the_command_leaves_no_file_if_it_cannot_write_one(
    tmp_path: Path, name: str, kafka: str, says: str
) -> None:
    words = ["config", "--init", "--config", str(tmp_path / name), "--kafka", kafka]
    refused = CliRunner().invoke(cli, words)
    assert isinstance(refused.exception, Fatal)
    assert says in str(refused.exception)
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_once_and_leaves_nothing_that_lint_refuses(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    words = ["config", "--init", "--config", str(file), "--kafka", "kafka-1:9092/objects"]
    wrong = CliRunner().invoke(cli, [*words, "--rows", "csvv json"])
    assert wrong.exit_code != 0
    assert "csvv" in str(wrong.exception)
    assert "mine.toml" not in str(wrong.exception)
    assert not file.exists()
    made = CliRunner().invoke(cli, words)
    assert made.exit_code == 0, made.output
    assert tomllib.loads(file.read_text())["kafka"]["input_topic"] == "objects"
    again = CliRunner().invoke(cli, words)
    assert isinstance(again.exception, Fatal)
    assert "is there already" in str(again.exception)


def test_answers_are_read_from_a_pipe_in_the_order_of_the_questions(tmp_path: Path) -> None:
    """An empty or missing line stands for the default; a question that an option answers is not
    asked.
    """
    file = tmp_path / "piped.toml"
    words = ["config", "--init", "--config", str(file), "--kafka", "kafka-1:9092/objects"]
    made = CliRunner().invoke(cli, words, input="\nhttp://ts:8080/predictions/rows/2.0\n")
    assert made.exit_code == 0, made.output
    tree = tomllib.loads(file.read_text())
    assert tree["kafka"]["input_topic"] == "objects"
    assert tree["objects"]["endpoint_url"] == "http://localhost:9000"
    assert tree["model"]["version"] == "2.0"
    assert tree["rows"]["format"] == "auto"


def test_an_extra_that_is_not_installed_is_told_and_the_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.delitem(sys.modules, "penstock.adapters.model_servers.oip.grpc_calls", False)
    file = tmp_path / "g2.toml"
    words = ["config", "--init", "--config", str(file), "--model", "grpc://t:8001/rows"]
    made = CliRunner().invoke(cli, words)
    assert made.exit_code == 0, made.output
    assert "[grpc]" in made.output
    assert tomllib.loads(file.read_text())["model"]["protocol"] == "oip-grpc"


@pytest.mark.parametrize(
    "key",
    [
        "cam_3/20261129_100203.417.jpg",
        "cam-3/2026-11-29T10-02-03.417Z.jpg",
        "cam 3/cam_3_2026-11-29T11-02-03.417+0100.png",
        "cam-3/1795946523417.mp4",
    ],
)
def test_the_pattern_of_the_file_finds_the_times_that_cameras_write(key: str) -> None:
    text = starter(StarterAnswers()).replace("# time_from", "time_from")
    times = KeyTimes(tomllib.loads(text)["kafka"]["time_from"])
    assert times.timed(Reference(bucket="b", key=key)).event_time == 1_795_946_523_417
