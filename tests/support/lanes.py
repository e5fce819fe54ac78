"""Which process runs which test, where pytest has several, and in which order.

Rule: a file's tests are run by one process, in the order of the file; those on the real services
singly, by whichever process is free, as they share nothing that takes long to make. Some processes
begin with these, and wait until the services are up; the others leave them the cores that a build
needs. pytest-xdist's marks (`loadgroup`) can say only what stays together, not how many processes
are on the services at a time, and they become a part of each test's name. Owner: tests/conftest.py.
"""

from typing import Any, Final

from xdist.scheduler import LoadScopeScheduling

ON_SERVICES: Final = "tests/integration/"
# Of the processes, so many begin with the tests on the real services, which mostly wait; the
# others, one at least, use the cores meanwhile.
BEGIN_ON_SERVICES: Final = 5
# A process runs a test only when it knows the next one, for whose sake it keeps what both share.
RUNNING_AND_NEXT: Final = 2
# Begun first: whichever process began one of these late would be the last to end. The seeds, which
# are computing alone, use the cores while those on the services wait.
LONG: Final = [
    "tests/integration/test_security.py",
    "tests/integration/test_hosts.py",
    "tests/integration/test_identities.py",
    "tests/integration/test_positions.py",
    "tests/integration/test_broker_errors.py",
    "tests/integration/test_sick_server.py",
    "tests/integration/test_bench.py",
    "tests/integration/test_huge.py",
    "tests/integration/test_page.py",
    "tests/integration/test_chaos.py",
    "tests/integration/test_replay.py",
    "tests/integration/test_readers.py",
    "tests/integration/test_ways_that_forget.py",
    "tests/integration/test_own_data.py",
    "tests/integration/test_tables.py",
    "tests/integration/test_exactly_once.py",
    "tests/integration/test_cameras.py",
    "tests/integration/test_mute_broker.py",
    "tests/corpus/test_memory.py",
    "tests/simulation/test_seeds.py",
    "tests/demo/test_demo.py",
    "tests/writers/test_servers.py",
    "tests/corpus/test_objects.py",
    "tests/simulation/test_simulation.py",
    "tests/test_examples.py",
    "tests/test_wheel.py",
    "tests/corpus/test_lives.py",
    "tests/stages/test_bad_objects.py",
    "tests/stages/test_hang_ups.py",
    "tests/stages/test_sick_server.py",
    "tests/stages/test_far_services.py",
    "tests/stages/test_retries.py",
    "tests/writers/test_pictures.py",
    "tests/writers/test_sound_and_film.py",
    "tests/writers/test_tables.py",
]
# Services of their own, made once for all tests of the file.
OWN_SERVICES: Final = [
    "tests/integration/test_security.py",
    "tests/integration/test_identities.py",
]
# Its servers put requests that come together into one batch: a row that one test has refused would
# refuse the rows of another.
ONE_BY_ONE: Final = ["tests/integration/test_model_servers.py"]


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def rank(nodeid: str) -> int:
    """Tests of a lower one begin earlier."""
    file = file_of(nodeid)
    return LONG.index(file) if file in LONG else len(LONG)


class Lanes(LoadScopeScheduling):  # type: ignore[misc]
    """What is collected is in the order of `rank`."""

    def _split_scope(self, nodeid: str) -> str:
        file = file_of(nodeid)
        is_single = file.startswith(ON_SERVICES) and file not in (*OWN_SERVICES, *ONE_BY_ONE)
        return nodeid if is_single else file

    def _reschedule(self, node: Any) -> None:
        """A process has no more in hand than it needs: what waits there nobody else can take."""
        if not self.workqueue or self._pending_of(self.assigned_work[node]) < RUNNING_AND_NEXT:
            super()._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        nodes = self.nodes
        on_services = nodes.index(node) < min(BEGIN_ON_SERVICES, len(nodes) - 1)
        for scope, tests in self.workqueue.items():
            if next(iter(tests)).startswith(ON_SERVICES) == on_services:
                self.workqueue.move_to_end(scope, last=False)
                break
        super()._assign_work_unit(node)
