"""What `scripts/stack` must never get wrong, whatever the services: whose process, whose build."""

import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from realstack import layout, processes, stack
from realstack.layout import State
from realstack.model_servers import ModelServer
from realstack.prerequisites import run
from realstack.processes import Process
from realstack.service import Launch, NotReady, Ports, StackError

# Leads a child that ignores SIGTERM; says so when both run.
FAMILY = """
import signal, subprocess, sys, time
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);" \\
        "print('ready', flush=True); time.sleep(600)"
process = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE)
process.stdout.readline()
print(process.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def family(tmp_path: Path) -> Iterator[tuple[Process, Process]]:
    """A process, and the child that it started."""
    log = tmp_path / "log"
    parent = processes.start([sys.executable, "-c", FAMILY], log=log, cwd=tmp_path, env={})
    while not log.read_text().endswith("\n"):
        assert parent.running, log.read_text()
    yield parent, processes.find(int(log.read_text()))
    processes.stop(parent)


def test_stopping_ends_children_that_ignore_it(family: tuple[Process, Process]) -> None:
    parent, child = family
    assert child.running
    processes.stop(parent)
    assert not parent.running
    while child.running:  # a killed process is gone when the system comes round to it
        pass


def test_a_process_id_used_again_is_left_alone(family: tuple[Process, Process]) -> None:
    parent, _ = family
    ended_long_ago = Process(parent.pid, "another start time")
    assert not ended_long_ago.running
    processes.stop(ended_long_ago)
    assert parent.running


def test_a_build_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "cache" / "build"

    def make(folder: Path) -> None:
        (folder / "part").touch()
        assert not target.exists()

    layout.build_once(target, make)
    assert [path.name for path in target.iterdir()] == ["part"]


def build_badly(folder: Path) -> None:
    (folder / "part").touch()
    raise ConnectionError("half of it arrived")


def test_a_build_that_fails_leaves_no_folder_behind(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError):
        layout.build_once(tmp_path / "build", build_badly)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_of_several_processes_that_build_the_same_one_builds_and_the_others_use_its_build(
    tmp_path: Path,
) -> None:
    built: list[Path] = []

    def make(folder: Path) -> None:
        built.append(folder)
        if len(built) == 1:
            second.start()
            second.join(0.2)  # the time it would need to build as well

    second = threading.Thread(target=layout.build_once, args=(tmp_path / "build", make))
    layout.build_once(tmp_path / "build", make)
    second.join()
    assert len(built) == 1


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> layout.State:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    layout.home().mkdir(parents=True)
    return layout.State("local", layout.free_ports())


class Unobtainable(ModelServer):
    def __init__(self) -> None:
        super().__init__("unobtainable", ("unobtainable",))

    def build(self, within_s: float | None = None) -> None:
        command = [sys.executable, "-c", "import time; time.sleep(600)"]
        run(command, what="installing it", cwd=Path("/"), within_s=within_s and 0.01)


def test_a_model_server_that_is_only_wished_for_may_be_missing_and_the_record_says_why(
    state: layout.State,
) -> None:
    assert stack._up_extras(state, [Unobtainable()], optional=["unobtainable"]) == []
    assert state.missing == {"unobtainable": "installing it takes longer than 0 s"}
    assert layout.load() == state


def test_a_model_server_that_was_asked_for_must_be_there(
    state: layout.State,
) -> None:
    class Broken(Unobtainable):
        def build(self, within_s: float | None = None) -> None:
            raise StackError("no such package")

    with pytest.raises(StackError, match="no such package"):
        stack._up_extras(state, [Broken()], optional=[])
    assert stack._up_extras(state, [Broken()], optional=["unobtainable"]) == []
    assert state.missing == {"unobtainable": "no such package"}


def test_ports_are_distinct_and_below_those_of_outgoing_connections() -> None:
    ports = layout.free_ports()
    assert ports.keys() == set(layout.PORT_NAMES)
    assert len(set(ports.values())) == len(ports)
    assert max(ports.values()) < 32768


class Slow:
    """A service that answers at the third question."""

    name = "slow"

    def __init__(self) -> None:
        self.asked = 0

    def build(self) -> None:
        return

    def configure(self, folder: Path, ports: Ports) -> Launch:
        raise NotImplementedError

    def probe(self, ports: Ports) -> None:
        self.asked += 1
        if self.asked < 3:
            raise NotReady("not yet")


def test_a_service_that_was_waited_for_is_told_with_its_seconds(capsys: Any) -> None:
    service, state = Slow(), State("local", {"slow": 1})
    stack._wait(service, state)
    assert re.fullmatch(r"slow: answers, after \d+ s\n", capsys.readouterr().err)
    stack._wait(service, state)
    assert capsys.readouterr().err == ""
