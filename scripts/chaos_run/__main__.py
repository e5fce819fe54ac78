"""The command line of `scripts/chaos`: makes a stack and a folder of its own, runs, and prints the
report.

Rule: the run stops its workers and services even if it fails. If a promise was broken or the run
failed, the folder is kept. It has the log of the faults, the logs of workers and services, and the
judge's report.
"""

import argparse
import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from chaos_run import chain_run, hosts_run, plan, report, scenes_run
from chaos_run.poison import CUT, cutting
from chaos_run.row_pool import LINES
from chaos_run.run import Outcome, chaos, prepare, timed
from chaos_run.services_under_test import (
    TOPICS,
    Place,
    add_distance,
    crash,
    distance_of,
    environ_of,
    model_worker_pid,
    seeded,
)
from penstock.tools.bench.distance import at_distance
from realstack import kafka, layout, stack
from realstack.service import StackError

EXIT_VIOLATED = 1
# With fewer rows no object would be large.
LEAST_ROWS = 20_000
BUCKET = "chaos"
RESULTS_BUCKET = "chaos-results"
# Each announcement of an object is answered by its own result object.
RESULTS = f"s3://{RESULTS_BUCKET}/{{partition}}/{{offset}}.jsonl"
STORE = "PENSTOCK_OBJECTS__ENDPOINT_URL"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/chaos",
        description="Rows through three real workers while these, Kafka, MinIO and TorchServe are "
        "killed, frozen and restarted at random moments; then `penstock verify`. It runs a stack "
        "of its own and disturbs no other. About 16 s a fault, and two minutes.",
        epilog="Exit code 0: nothing lost, nothing out of order, duplicates within their limit. 1: "
        "a promise was broken; the folder with all logs is kept.",
    )
    parser.add_argument("--scenes", action="store_true", help="another run; see --scenes --help")
    parser.add_argument("--chain", action="store_true", help="another run; see --chain --help")
    parser.add_argument("--hosts", action="store_true", help="another run; see --hosts --help")
    parser.add_argument("--rows", type=int, default=1_000_000, help="default 1,000,000")
    parser.add_argument("--faults", type=int, default=30, help="default 30")
    parser.add_argument("--seed", type=int, help="repeats a run's plan; random if not given")
    parser.add_argument(
        "--guarantee", choices=["at_least_once", "exactly_once"], default="at_least_once"
    )
    parser.add_argument(
        "--records",
        choices=["rows", "objects", "both"],
        default="rows",
        help="what is published; with objects and both answers are result objects, too",
    )
    parser.add_argument(
        "--oauth",
        action="store_true",
        help="everybody logs in to Kafka by tokens of 10 s, and anew each 5 s (the extra jwt)",
    )
    add_distance(parser)
    parser.add_argument("--keep", action="store_true", help="keep the folder in any case")
    options = parser.parse_args(arguments)
    if options.rows < LEAST_ROWS or options.faults < 1:
        parser.error(f"at least {LEAST_ROWS:,} rows and one fault")
    return options


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    seed, folder = seeded(options.seed)
    well = False
    try:
        planned = plan.make(seed, options.rows, options.faults, lines=LINES, with_poison=True)
        outcome = asyncio.run(_run(planned, options, folder))
        well = report.tell(outcome)
    except StackError as error:
        print(f"scripts/chaos: {error}", file=sys.stderr)
        return error.exit_code
    except asyncio.CancelledError:
        print("scripts/chaos: interrupted", file=sys.stderr)
    finally:
        _stop(folder)
        if well and not options.keep:
            shutil.rmtree(folder)
        else:
            print(f"kept: {folder}")
    return 0 if well else EXIT_VIOLATED


async def _run(planned: plan.Plan, options: argparse.Namespace, folder: Path) -> Outcome:
    if not options.oauth:
        return await _run_as({}, planned, options, folder)
    from realstack.token_server import CLIENT, SECRET, Signer, token_server  # noqa: PLC0415

    signer = Signer(folder)
    os.environ[kafka.KEYS] = signer.keys.as_uri()
    async with token_server(signer) as server:
        login = {"PROVIDER": "oidc", "TOKEN_URL": server.url}
        login |= {"CLIENT_ID": CLIENT, "CLIENT_SECRET": SECRET}
        keys = {f"KAFKA__OAUTH__{name}": value for name, value in login.items()}
        keys |= {"KAFKA__SECURITY_PROTOCOL": "SASL_PLAINTEXT"}
        keys |= {"KAFKA__SASL_MECHANISM": "OAUTHBEARER"}
        return await _run_as(keys, planned, options, folder)


async def _run_as(
    login: Mapping[str, str], planned: plan.Plan, options: argparse.Namespace, folder: Path
) -> Outcome:
    """`login`: settings that say who everybody is to Kafka."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    said = await asyncio.to_thread(stack.up, "local")
    tell = timed()
    tell(said)
    environ = _environ(options.guarantee, options.records, login)
    async with cutting(environ[STORE], CUT) as url:
        environ[STORE] = url
        near = Place(environ, BUCKET, folder, model_worker_pid, stack.restart, crash)
        await asyncio.to_thread(prepare, near, buckets=[RESULTS_BUCKET])
        async with at_distance(near.config, distance_of(options)) as far:
            return await chaos(planned, replace(near, far=far.settings), tell)


def _environ(guarantee: str, records: str, login: Mapping[str, str]) -> dict[str, str]:
    changes = TOPICS | dict(login)
    state = layout.load()
    if login and state is not None:
        changes["KAFKA__BOOTSTRAP_SERVERS"] = f"127.0.0.1:{state.ports['kafka_oauth']}"
    changes |= {"KAFKA__GROUP": "chaos", "DELIVERY__GUARANTEE": guarantee}
    # Each worker serves its page on a free port.
    changes |= {"HTTP__PORT": "0", "MODEL__REQUEST": "float32"}
    if records != "rows":
        changes |= {"OUTPUT__RECORDS": records, "OUTPUT__OBJECTS": RESULTS}
    return environ_of(changes)


def _stop(folder: Path) -> None:
    """Stop the services, keep their logs and remove their data."""
    for log in layout.home().glob("*.log"):
        shutil.copy(log, folder)
    stack.down()
    shutil.rmtree(folder / "state", ignore_errors=True)


if __name__ == "__main__":
    runs = {"--scenes": scenes_run.main, "--chain": chain_run.main, "--hosts": hosts_run.main}
    chosen = next((run for flag, run in runs.items() if flag in sys.argv), main)
    sys.exit(chosen(sys.argv[1:]))
