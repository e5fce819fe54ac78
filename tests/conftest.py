"""What holds for every test, and which process runs which where pytest has several."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# Tests count, they do not measure: a busy machine makes no example wrong.
settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penstock")

ON_SERVICES = "tests/integration/"
# Of the processes, so many begin with the tests on the real services, which mostly wait; the others
# use the cores meanwhile.
BEGIN_ON_SERVICES = 2


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """One process runs all tests of a file."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]

    def _assign_work_unit(self, node: Any) -> None:
        on_services = self.nodes.index(node) < BEGIN_ON_SERVICES
        for file in self.workqueue:
            if file.startswith(ON_SERVICES) == on_services:
                self.workqueue.move_to_end(file, last=False)
                break
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    config.option.loadscopereorder = False  # in the order of collection
    return ByFile(config, log)
