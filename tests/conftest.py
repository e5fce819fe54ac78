"""What holds for every test."""

import gc
import logging
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol
from botocore.loaders import JSONFileLoader
from hypothesis import HealthCheck, settings

from tests.support.lanes import Lanes, rank
from tests.support.warm_start import start_warm

if TYPE_CHECKING:
    from penstock.config import Config

# Tests count, they do not measure: a busy machine makes no example wrong.
settings.register_profile(
    "penstock", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("penstock"), max_examples=20)
settings.load_profile("penstock")

# Collecting 10,000 tests leaves 440,000 objects. The garbage collector would look through all of
# them time and again, in each process that runs tests: a quarter of the tests' CPU.
gc.disable()

# The set-up or tear-down of a test that takes longer is among the slowest durations.
TOLD_S = 1.0

start_warm()

# botocore parses its descriptions of S3 anew for each client: 0.15 s, most of a test of a store.
_parsed = cache(JSONFileLoader().load_file)
JSONFileLoader.load_file = lambda _, path: _parsed(path)


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """A command that is run in this process sets it; for the tests behind it would hide lines."""
    logger = logging.getLogger("penstock")
    before = logger.level
    yield
    logger.setLevel(before)


@pytest.fixture
def cfg(monkeypatch: pytest.MonkeyPatch) -> "Iterator[Config]":
    """With a broker in this process; the environment names it, too."""
    from penstock.config import load  # noqa: PLC0415 (few tests need it)
    from penstock.tools.embedded.broker import EmbeddedBroker  # noqa: PLC0415

    with EmbeddedBroker() as broker:
        monkeypatch.setenv("PENSTOCK_KAFKA__BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        yield load()


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The deadly formats are installed, here and for processes that are started from here."""
    from tests.support import deadly_formats  # noqa: PLC0415

    deadly_formats.plant(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path), str(Path.cwd())])
    deadly_formats.forget_plugins()
    yield
    deadly_formats.forget_plugins()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # one of several processes
        items.sort(key=lambda item: rank(item.nodeid))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """One of several processes packs each report for the one that started it, which unpacks it. Of
    most tests the reports of set-up and tear-down say nothing.
    """
    if not hasattr(item.config, "workerinput"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in runtestprotocol(item, nextitem=nextitem, log=False):
        if report.when == "call" or not report.passed or report.duration > TOLD_S:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_collection_finish() -> None:
    gc.freeze()  # what exists now stays: the collector leaves it alone
    gc.set_threshold(5_000)
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    # Behind pytest's own last collection, which need not go through what was frozen.
    config.add_cleanup(gc.unfreeze)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Lanes:
    config.option.loadscopereorder = False  # in the order of collection
    return Lanes(config, log)
