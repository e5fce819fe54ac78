"""The command line of `scripts/fleet`: chooses which figures are measured, and compares each with
its goal.

Rule: the run makes its own topics, groups and buckets and removes them. Owner: the person who runs
it.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from fleet_run import members, scaling, times
from penstock.errors import EXIT_CHECK_FAILED, EXIT_DONE


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/fleet",
        description="Needs the stack (scripts/stack up), and for the figures a machine with "
        "nothing else to do. Services run on core 0, workers on core 1 once they have started.",
        epilog="Exit code 1: a goal was missed.",
    )
    commands = parser.add_subparsers(dest="measure", required=True, metavar="MEASURE")
    commands.add_parser("times", help="restarts, a joiner, deaths, by Kafka's stamps: 4 minutes")
    scale = commands.add_parser("scaling", help="two workers against one, by cgroup: 2 minutes")
    scale.add_argument("--cores", type=float, default=0.5, help="of each; default %(default)s")
    scale.add_argument("--rows", type=int, default=1_000_000, help="default %(default)s")
    group = commands.add_parser("members", help="members without work: a rebalance, memory, CPU")
    group.add_argument("--members", type=int, default=100, help="default %(default)s")
    group.add_argument("--partitions", type=int, default=1_000, help="default %(default)s")
    return parser.parse_args()


async def main(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="penstock-fleet-") as folder:
        match options.measure:
            case "times":
                figures = await times.measured(Path(folder))
            case "scaling":
                figures = await scaling.measured(Path(folder), options.cores, options.rows)
            case _:
                figures = await members.measured(options.members, options.partitions)
    return EXIT_DONE if all(figure.is_kept for figure in figures) else EXIT_CHECK_FAILED


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parse())))
