"""`scripts/chaos --hosts`: each worker and each service on a host of its own, and cuts between
them.

Rule: everything lives in namespaces of the run, which end with it. If anything was wrong, the
folder with the logs is kept. Owner: the command line.
"""

import argparse
import asyncio
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from chaos_run import plan, report
from chaos_run.cluster import Cluster
from chaos_run.network import private, refusal
from chaos_run.row_pool import LINES
from chaos_run.run import Outcome, chaos, prepare, timed
from chaos_run.services_under_test import (
    TOPICS,
    Place,
    add_distance,
    bare,
    distance_of,
    seeded,
    variables,
)
from penstock.errors import EXIT_CHECK_FAILED, EXIT_DONE
from realstack import minio, what_runs
from realstack.service import EXIT_MISSING, StackError

BUCKET = "chaos"
# The gaps between faults are short, because the cuts themselves take long.
GAP_S = (1.0, 6.0)
INSIDE = "--inside"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/chaos --hosts",
        description="Rows through three workers, each on a host of its own, as are three brokers, "
        "a store and a model server. Workers are cut from one of them, both ways or one way, for "
        "shorter and longer than a session; brokers are lost and rolled, workers rolled. Then "
        "`penstock verify`. About 11 s a fault, and a minute.",
        epilog="Exit code 0: every promise was kept. 1: one was broken, the folder with all logs "
        "is kept. 3: network namespaces cannot be made here.",
    )
    parser.add_argument("--hosts", action="store_true")
    parser.add_argument("--rows", type=int, default=200_000, help="default 200,000")
    parser.add_argument("--faults", type=int, default=10, help="default 10")
    parser.add_argument("--seed", type=int, help="repeats a run's plan; random if not given")
    parser.add_argument(
        "--guarantee", choices=["at_least_once", "exactly_once"], default="at_least_once"
    )
    add_distance(parser)
    parser.add_argument("--kinds", default=",".join(plan.HOST_KINDS), help="default: %(default)s")
    parser.add_argument(
        "--from",
        dest="former",
        type=Path,
        help="an upgrade: each worker begins with the code of this checkout (git worktree add), "
        "and has this one's when it is started again",
    )
    parser.add_argument(INSIDE, type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.inside:
        return _inside(options)
    if reason := refusal():
        print(f"scripts/chaos --hosts: no network namespaces here: {reason}", file=sys.stderr)
        return EXIT_MISSING
    for service in (what_runs.KAFKA, what_runs.MINIO):
        service.build()
    seed, folder = seeded(options.seed)
    own = [*arguments, "--seed", str(seed), INSIDE, str(folder)]
    code = subprocess.run(
        private([sys.executable, "-m", "chaos_run", *own]), check=False
    ).returncode
    if code == EXIT_DONE:
        shutil.rmtree(folder)
    else:
        print(f"kept: {folder}")
    return code


def _inside(options: argparse.Namespace) -> int:
    planned = plan.make(
        options.seed,
        options.rows,
        options.faults,
        lines=LINES,
        kinds=options.kinds.split(","),
        gap_s=GAP_S,
    )
    try:
        outcome = asyncio.run(_run(planned, options))
    except StackError as error:
        print(f"scripts/chaos --hosts: {error}", file=sys.stderr)
        return error.exit_code
    return EXIT_DONE if report.tell(outcome) else EXIT_CHECK_FAILED


async def _run(planned: plan.Plan, options: argparse.Namespace) -> Outcome:
    tell = timed()
    cluster = Cluster(options.inside)
    await asyncio.to_thread(cluster.start)
    tell("three brokers and a store are up")
    place = Place(
        _environ(cluster, options.guarantee),
        BUCKET,
        options.inside,
        lambda: None,
        cluster.roll,
        lambda *_: None,
        cluster,
        cluster.network.launcher,
        options.former,
    )
    await asyncio.to_thread(prepare, place, "--replication", "3")
    async with cluster.model(), cluster.at_distance(distance_of(options)) as far:
        return await chaos(planned, replace(place, far=far), tell)


def _environ(cluster: Cluster, guarantee: str) -> dict[str, str]:
    return bare() | variables(
        {
            **TOPICS,
            "KAFKA__GROUP": "chaos",
            "KAFKA__BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
            "OBJECTS__ENDPOINT_URL": cluster.store_url,
            "OBJECTS__KEY": minio.KEY,
            "OBJECTS__SECRET": minio.SECRET,
            "MODEL__URL": cluster.model_url,
            "MODEL__REQUEST": "float32",
            "DELIVERY__GUARANTEE": guarantee,
            "HTTP__PORT": "0",
        }
    )
