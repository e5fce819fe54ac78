"""`scripts/chaos --hosts`: workers on hosts of their own that are cut from services.

Rule: services and hosts are the test's own, in namespaces that end with it. Where the machine gives
nobody network namespaces it is skipped. The services are as far away as in a cloud.
`scripts/test long` has ten faults of all kinds, for both guarantees, far and near.
"""

import asyncio
import os
import sys

import pytest

from realstack.service import EXIT_MISSING
from tests.support.services import ROOT, Services

IS_LONG = bool(os.environ.get("EVERY_CUT"))
# Three brokers start and stop on cores that other tests use.
LIMIT_S = 900
LONG = ["--rows", "200000", "--faults", "10"]
# One of each.
SHORT = ["--rows", "20000", "--faults", "4"]
SHORT += ["--kinds", "cut kafka,deaf store,mute model,lose broker"]
FAR = ["--store-ms", "30", "--model-ms", "50", "--kafka-ms", "10"]


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("distance", [FAR, []][: 1 + IS_LONG], ids=["far", "near"][: 1 + IS_LONG])
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"][: 1 + IS_LONG])
async def test_nothing_is_lost_swapped_or_doubled_while_hosts_do_not_hear_each_other(
    services: Services, guarantee: str, distance: list[str]
) -> None:
    options = [*(LONG if IS_LONG else SHORT), "--seed", "3", "--guarantee", guarantee, *distance]
    # `services`: what the run starts is built by now.
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "chaos_run", "--hosts"),
        *options,
        env=os.environ | {"PYTHONPATH": str(ROOT / "scripts")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == EXIT_MISSING:
        pytest.skip(output.decode())
    assert process.returncode == 0, output.decode()
    assert f"faults         {10 if IS_LONG else 4}: " in output.decode()
