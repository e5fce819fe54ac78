"""`penstock lint`: everything that is wrong in one run, with its line, and nothing in health."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from penstock.commands.root import cli
from penstock.errors import Fatal
from penstock.tools.lint import LintFinding, lint

ROUTED = '[[models]]\nname = "ts"\n[[routes]]\nstream = "{}"\nmodel = "{}"\n'
HELPED = """region = "eu"
[kafka]
session_ms = 45_000
[regions.eu]
fallback = ["us"]
[regions.us]
help_after_ms = 45_000
topics = ["refs-us"]
"""
BY_TOKEN = """[kafka]
security_protocol = "SASL_SSL"
sasl_mechanism = "OAUTHBEARER"
"""
BY_BROKER = """[kafka]
client = "confluent"
group_protocol = "consumer"
session_ms = 30_000
"""


def found(
    folder: Path, text: str, *streams: str, environ: Mapping[str, str] | None = None
) -> list[LintFinding]:
    file = folder / "penstock.toml"
    file.write_text(text)
    return lint(file, environ or {}, streams)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("[kafka]\n\ninput_topik = 'a'\n", 3, "did you mean input_topic?"),
        ("[model]\nsamples = true\n", 2, "? [http] has this key"),
        ("[kafke]\ngroup = 'a'\n", 1, "no section [kafke]"),
        ("[window]\nmax_rows = 'many'\n", 2, "window.max_rows: Expected `int`"),
        ("[model]\nrequest = [\n 'json',\n]\nurl = 'x'\n", 2, "model.request"),
        ("[model]\nurl = 'localhost'\n", 2, "write http://localhost"),
        ("[stores.a]\nroute = ['x']\n", 1, "url"),
        ("[kafka]\nstream_from = '('\n", 2, "no regular expression"),
        ("[kafka]\ninput_pattern = '('\n", 2, "no regular expression"),
        ("[kafka]\nsession_ms = 5_000\n", 2, "kafka.session_ms"),
        ("[kafka]\nheartbeat_ms = 2_667\n", 2, "above a third of kafka.session_ms"),
        ("[kafka]\ngroup_protocol = 'consumer'\n", 2, 'needs kafka.client = "confluent"'),
        ("[kafka]\ninstance_id = 'a b'\n", 2, "makes 'a b'"),
        ("[kafka]\nsecurity_protocol = 'SASL_SSL'\n", 2, "needs kafka.sasl_username"),
        (BY_TOKEN, 3, "needs a table [kafka.oauth]"),
        (BY_BROKER, 4, "has no effect"),
        (HELPED, 7, "within kafka.session_ms = 45000"),
        ("[model]\npreset = 'mlflow'\n", 2, "model.protocol = 'http'"),
        ("[output]\nobjects = 's3://b/{stream}.jsonl'\n", 2, "{bucket} and {key}"),
        ("[output]\nrecords = 'objects'\n", 2, "needs output.objects"),
        (
            "[results]\nnested = 'columns'\n[output]\nobjects = 's3://b/{bucket}/{key}.csv'",
            2,
            "Parquet",
        ),
        ("[output]\ntopic = 'refs'\n", 2, "round for ever"),
        ("[kafka]\ninput_pattern = 'pre.*'\n", None, "round for ever"),
        ("[output]\ndlq_topic = 'predictions'\n", 2, "among the answers"),
        ("[window]\nmax_wait_ms = 80\n", 2, "above target_p99_ms = 50"),
        ("[window]\nmax_bytes = 7_000_000\n", 2, "above what TorchServe takes"),
        ("[objects]\npin = false\n[delivery]\nguarantee = 'exactly_once'\n", 2, "objects.pin"),
        (ROUTED.format("a", "tz"), 3, "did you mean ts?"),
        (ROUTED.format("*", "ts") + "[[routes]]\nkey = '*.csv'\nmodel = 'rows'\n", 6, "number 1"),
        (ROUTED.format("a", "ts") + "[routes.split]\nrows = 101\n", 6, "split"),
        ("[kafka\n", 1, "Expected"),
    ],
)
def test_each_fault_is_told_with_its_line(
    tmp_path: Path, text: str, line: int | None, says: str
) -> None:
    told = [one for one in found(tmp_path, text) if says in one.said]
    assert told, found(tmp_path, text)
    assert told[0].line == line
    assert str(told[0]).startswith(f"{tmp_path / 'penstock.toml'}{f':{line}' if line else ''}: ")


def test_all_faults_are_told_in_one_run_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "[kafka]\na = 1\nb = 2\n[window]\nmax_rows = -1\nmax_wait_ms = 80\n[log]\nlevel = 'x'\n"
    assert [one.line for one in found(tmp_path, text)] == [2, 3, 5, 6, 8]


def test_tables_behind_one_without_its_required_key_keep_their_numbers(tmp_path: Path) -> None:
    models = "[[models]]\nurl = 'http://a:1'\n[[models]]\nname = 'b'\nmax_in_flight = 0\n"
    routes = "[[routes]]\nstream = 'x'\n[[routes]]\nstream = 'y'\nmodel = 3\n"
    routes += "[[routes]]\nmodel = 'none'\n"
    told = found(tmp_path, models + routes, environ={"PENSTOCK_MODEL__NAME": "other"})
    assert [(one.line, one.key) for one in told] == [
        (1, "models.1"),
        (5, "models.2.max_in_flight"),
        (6, "routes.1"),
        (10, "routes.2.model"),
        (11, "routes.3"),
    ]


def test_a_route_that_no_known_stream_can_take_is_told(tmp_path: Path) -> None:
    text = ROUTED.format("site-1/*", "ts")
    for streams in ((), ("site-1/cam-1", "x"), ("site-*",)):
        assert not found(tmp_path, text, *streams)
    (told,) = found(tmp_path, text, "plat/site-1/cam-1")
    assert (told.line, told.key) == (4, "routes.1.stream")
    assert "'plat/site-1/cam-1'" in told.said


def test_a_site_that_fits_no_known_stream_is_told_if_there_are_scenes(tmp_path: Path) -> None:
    text = '[scenes]\ntopic = "yard"\n'
    for streams in ((), ("site-1/cam-1", "x"), ("site-*",)):
        assert not found(tmp_path, text, *streams)
    assert not found(tmp_path, "", "cam-1")
    [finding] = found(tmp_path, text, "cam-1", "cam-2")
    assert (finding.key, "it fits no stream" in str(finding)) == ("scenes.site", True)


def test_variables_are_looked_at_each_and_together_with_the_file(tmp_path: Path) -> None:
    environ = {"PENSTOCK_NO__KEY": "1", "PENSTOCK_LOG__LEVEL": "x", "PENSTOCK_HTTP__PORT": "y"}
    places = {one.key for one in found(tmp_path, "", environ=environ)}
    assert places == {"PENSTOCK_NO__KEY", "log.level", "http.port"}
    assert not found(tmp_path, "", environ={"PENSTOCK_WINDOW__MAX_WAIT_MS": "5"})


def test_the_exit_code_says_whether_there_is_anything(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("[window]\nmax_bytes = 7_000_000\n")
    run = CliRunner().invoke
    ended = run(cli, ["lint", "--config", str(file), "--json"])
    assert ended.exit_code == 1
    assert [load["key"] for load in orjson.loads(ended.stdout)] == ["window.max_bytes"]
    kept = run(cli, ["lint", "--config", str(file), "--ignore", "window.max_bytes"])
    assert (kept.exit_code, kept.stdout) == (0, f"{file}: nothing is wrong\n")


def test_a_list_of_streams_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "streams.txt"
    file.write_bytes(b"\xff\xfe")
    refused = CliRunner().invoke(cli, ["lint", "--streams", str(file)])
    assert isinstance(refused.exception, Fatal)
    assert f"--streams {file}" in str(refused.exception)


def test_a_file_is_read_as_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_bytes('[kafka]\ninput_topic = "Öfen"  # ü\n'.encode())
    ascii_only = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    for command in ("config", "lint"):
        ended = subprocess.run(
            [sys.executable, "-m", "penstock", command, "--config", str(file)],
            env={**os.environ, **ascii_only, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "decode" not in ended.stderr, command
        assert "Öfen" in ended.stdout or command == "lint"
