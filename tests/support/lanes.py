"""Which process runs which test, where pytest has several, and in which order.

Rule: a file's tests are run by one process, in the order of the file; those on the real services
singly, by whichever process is free, as they share nothing that takes long to make. Until the
services are up, one process waits for them and the others do what needs none. pytest-xdist's marks
(`loadgroup`) can say only what stays together, not how many processes are on the services at a
time, and they become a part of each test's name. Owner: tests/conftest.py.
"""

from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

ON_SERVICES: Final = "tests/integration/"
# Of the processes, so many begin with the tests on the real services, which mostly wait; the others
# use the cores meanwhile.
BEGIN_ON_SERVICES: Final = 4
# Begun first: whichever process began one of these late would be the last to end. The seeds, which
# are computing alone, use the cores while those on the services wait.
LONG: Final = [
    "tests/integration/test_broker_errors.py",
    "tests/integration/test_security.py",
    "tests/integration/test_identities.py",
    "tests/integration/test_hosts.py",
    "tests/integration/test_positions.py",
    "tests/integration/test_huge.py",
    "tests/integration/test_sick_server.py",
    "tests/integration/test_replay.py",
    "tests/simulation/test_seeds.py",
    "tests/corpus/test_memory.py",
    "tests/demo/test_demo.py",
    "tests/corpus/test_objects.py",
    "tests/corpus/test_lives.py",
    "tests/stages/test_bad_objects.py",
    "tests/writers/test_servers.py",
]
# Services of their own, made once for all tests of the file.
OWN_SERVICES: Final = [
    "tests/integration/test_security.py",
    "tests/integration/test_identities.py",
]
# Its servers put requests that come together into one batch: a row that one test has refused would
# refuse the rows of another.
ONE_BY_ONE: Final = ["tests/integration/test_model_servers.py"]
# It kills a process of the model server: beside it no other test may use the services. It comes
# last, so that no process waits for its turn while there is other work.
ALONE: Final = ["tests/integration/test_chaos.py"]


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def rank(nodeid: str) -> int:
    """Tests of a lower one begin earlier."""
    file = file_of(nodeid)
    if file in ALONE:
        return len(LONG) + 1
    return LONG.index(file) if file in LONG else len(LONG)


class Lanes(LoadScopeScheduling):  # type: ignore[misc]
    """What is collected is in the order of `rank`."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._are_services_up = False

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        if self.registered_collections[node][item_index].startswith(ON_SERVICES):
            self._are_services_up = True
        super().mark_test_complete(node, item_index, duration)

    def _split_scope(self, nodeid: str) -> str:
        file = file_of(nodeid)
        if file in ALONE:
            return "alone"
        is_single = file.startswith(ON_SERVICES) and file not in (*OWN_SERVICES, *ONE_BY_ONE)
        return nodeid if is_single else file

    def _assign_work_unit(self, node: Any) -> None:
        most = BEGIN_ON_SERVICES if self._are_services_up else 1
        on_services = self.nodes.index(node) < most
        for scope, tests in self.workqueue.items():
            if next(iter(tests)).startswith(ON_SERVICES) == on_services:
                self.workqueue.move_to_end(scope, last=False)
                break
        super()._assign_work_unit(node)
