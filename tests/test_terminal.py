"""What a terminal gets: completion by its shell, and progress with an estimate of the rest."""

import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import logs
from penstock.commands import common_options
from penstock.commands.predict import OnTerminal
from penstock.commands.replay import replaying
from penstock.messages.prediction import decode_prediction
from penstock.terminal_text import escaped, predict_bar
from penstock.tools.replay.pacing import Look
from penstock.tools.verify.watch import WatchedAnswer

PENSTOCK = Path(sys.executable).with_name("penstock")


def said(**variables: str) -> str:
    """By the command, asked as a shell asks it."""
    done = subprocess.run(
        [PENSTOCK], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_of_a_shell_is_given_and_has_no_error(shell: str) -> None:
    script = said(_PENSTOCK_COMPLETE=f"{shell}_source")
    assert "_penstock_completion" in script
    assert f"{shell}_complete" in script
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("penstock tr", {"trace"}),
        ("penstock dlq re", {"redrive", "resume"}),
        ("penstock run --dry", {"--dry-run"}),
        ("penstock config --in", {"--init"}),
    ],
)
def test_a_line_is_completed(shell: str, words: str, completed: set[str]) -> None:
    number = str(len(words.split()) - 1)
    answer = said(_PENSTOCK_COMPLETE=f"{shell}_complete", COMP_WORDS=words, COMP_CWORD=number)
    found = re.split(r"[\n,]", answer)
    assert completed <= set(found)
    assert "demo" not in found


Bar = Callable[[], AbstractContextManager[Any]]


@pytest.mark.parametrize(
    ("bar", "move"),
    [
        (predict_bar, lambda it: (it.found(40), it.done(rows=80, objects=10))),
        (replaying, lambda it: it(10, 40, Look(40, 10).sentence)),
        (lambda: common_options.reading("topics"), lambda it: it(10, 40)),
    ],
)
def test_progress_tells_how_long_it_will_take(
    bar: Bar, move: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with bar() as it:
        move(it)
    assert re.search(r"-:--:--|\d:\d\d:\d\d.*\d:\d\d:\d\d", capsys.readouterr().err)


def test_progress_is_silent_where_nobody_looks(capsys: Any) -> None:
    with predict_bar() as bar:
        bar.found(3)
    assert capsys.readouterr() == ("", "")


# Sets a window's title, clears the screen, and turns the direction of writing.
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202edoow\r"
HARMLESS = r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202edoow\r"


def test_texts_of_others_cannot_control_a_terminal() -> None:
    kept = "caf\u00e9\u00a0\u2713\tx\n"
    assert escaped(kept + HOSTILE) == kept + HARMLESS
    assert escaped("\ud800") == r"\ud800"


def test_neither_in_a_log_line_nor_in_one_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    record = logging.LogRecord("penstock", logging.WARNING, "", 1, "%s", (HOSTILE,), None)
    assert logs.TextFormatter("%(message)s").format(record) == HARMLESS
    common_options.say(f"no rows in {HOSTILE}")
    common_options.say(HOSTILE, err=True)
    assert capsys.readouterr() == (f"no rows in {HARMLESS}\n", f"{HARMLESS}\n")


def test_nor_in_json_which_stays_the_same_document(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"stream": f"caf\u00e9{HOSTILE}", "rows": [1]}
    indented = json.dumps(document, indent=1).replace("\n", "\r")
    for written in (
        msgspec.json.encode(document),
        json.dumps(document, ensure_ascii=False),
        indented,
    ):
        common_options.say_json(written)
        said = capsys.readouterr().out
        assert said.strip().isprintable()
        assert json.loads(said) == document


def test_results_on_a_terminal_cannot_either(capsys: pytest.CaptureFixture[str]) -> None:
    OnTerminal().write(b'{"member":"\xc2\x9b31m"}\n{"row":1}\n')
    assert capsys.readouterr().out == '{"member":"\\u009b31m"}\n{"row":1}\n'


def test_all_commands_print_in_this_one_way() -> None:
    """`say` and `say_json`, or tables of rich, whose cells are made by `visible`."""
    for path in Path(common_options.__file__).parent.glob("*.py"):
        if path.stem != "common_options":
            assert not re.search(r"click\.s?echo\b|(?<!\.)\bprint\(", path.read_text())


def test_watched_answers_cannot_either() -> None:
    value = (
        b'{"v":1,"id":"r/0/0/0/0\\u001b[2J","stream":"a\\u001b[2J","row":0,"object":null,"model":"m",'
        b'"source":{"topic":"r","partition":0,"offset":0},"prediction":"\xc2\x9b31m"}'
    )
    line = WatchedAnswer("p/0/0", 0, None, value, decode_prediction(value)).line
    assert line.isprintable()
    assert line.count(r"\x1b[2J") == 2
