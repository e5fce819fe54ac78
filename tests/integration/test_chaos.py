"""`scripts/chaos` in short: no service is restarted, as other tests use them, too, and only the
process of a model of its own is killed.
"""

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from chaos_run import plan, report
from chaos_run.plan import Kind
from chaos_run.row_pool import LINES
from chaos_run.run import chaos
from chaos_run.services_under_test import Place
from realstack.model_servers import TorchServe
from tests.integration.conftest import MakeTopics
from tests.support.deployed_model import DeployedModel, registered
from tests.support.services import Services, stack_status
from tests.support.worker import environment

# Its three faults lie close together: the last one is over after 33 s.
SEED = 9


def is_ours(services: Services) -> bool:
    """Does the local stack serve the model? Then its process may be killed."""
    server = stack_status()["services"].get("torchserve")
    return bool(server and server["pid"] and services.model_url.endswith(server["address"]))


@asynccontextmanager
async def own_model(services: Services, folder: Path) -> AsyncIterator[DeployedModel | None]:
    """The model of all tests under another name, in a process that may be killed."""
    if not is_ours(services):
        yield None
        return
    name = f"chaos-{uuid.uuid4().hex[:8]}"
    # The server takes no two files of one name.
    archive = folder / f"{name}.mar"
    shutil.copy(TorchServe().store / "rows.mar", archive)
    async with registered(services, name, archive) as model:
        yield model


def no_restart(service: str, *_: float) -> None:
    raise AssertionError(f"{service} is for all tests")


async def test_nothing_is_lost_or_swapped_while_a_worker_dies_another_freezes_and_the_model_dies(
    services: Services, make_topics: MakeTopics, bucket: str, tmp_path: Path
) -> None:
    kinds: list[Kind] = ["kill", "freeze"]
    async with own_model(services, tmp_path) as model:
        if model:
            kinds.append("kill model worker")
        planned = plan.make(SEED, 20_000, len(kinds), lines=LINES, kinds=kinds)
        environ = environment(
            services,
            await make_topics(plan.PARTITIONS),
            HTTP__PORT=0,
            MODEL__NAME=model.name if model else services.model_name,
            MODEL__REQUEST="float32",
        )

        def model_worker_pid() -> int | None:
            return asyncio.run(model.worker_pid()) if model else None

        place = Place(environ, bucket, tmp_path, model_worker_pid, no_restart, no_restart)
        outcome = await chaos(planned, place, print)
    assert not report.problems(outcome), report.text(outcome)
    assert not outcome.exits, report.text(outcome)
    killed = [one.recovery for one in outcome.struck if one.kind == "kill"]
    assert len(outcome.struck) == len(kinds)
    assert all(recovery and recovery.took_s for recovery in killed), report.text(outcome)
