"""What holds for every test, and which of them go together where pytest has several processes."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# Tests count, they do not measure: a busy machine makes no example wrong.
settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penstock")

# All tests on the real services: they share these, and some make a service stand still.
ON_SERVICES = "tests/integration/"


def scope_of(nodeid: str) -> str:
    """One process runs all tests of a scope: of a file, or on the real services."""
    return ON_SERVICES if nodeid.startswith(ON_SERVICES) else nodeid.partition("::")[0]


class ByScope(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByScope:
    config.option.loadscopereorder = False  # in the order of collection
    return ByScope(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Beside the services the tests mostly wait: they come first, and others run meanwhile."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: scope_of(item.nodeid) != ON_SERVICES)
