"""The command line of `scripts/stack`: parses, calls, and at the end prints one line that says what
happened.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from functools import partial

from realstack import kafka, stack, what_runs
from realstack.model_servers import TORCHVISION
from realstack.service import StackError

COMMANDS = {
    "up": "start what is not running; returns when all services answer",
    "down": "stop all services and forget their data",
    "status": "tell what runs where; exit 1 unless all do",
    "env": "print export lines that point Penstock, or any other client, at the services",
    "restart": "stop one service, if it still runs, and start it again with its data and its ports",
}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/stack",
        description="Apache Kafka, MinIO and TorchServe: in Docker where an engine answers, else "
        "as local processes. Every command may be repeated.",
        epilog='Use it: scripts/stack up && eval "$(scripts/stack env)" && .venv/bin/penstock run. '
        "Exit code 3: something the machine lacks.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    parsers = {
        name: commands.add_parser(name, help=text, description=text)
        for name, text in COMMANDS.items()
    }
    parsers["status"].add_argument("--json", action="store_true", help="for programs")
    parsers["up"].add_argument(
        "--with",
        dest="extras",
        type=partial(_names, (*what_runs.EXTRAS, TORCHVISION)),
        default=(),
        metavar="NAME[,NAME...]",
        help="also these model servers and stores, as local processes: "
        + ", ".join(what_runs.EXTRAS)
        + "; torchvision beside TorchServe's torch",
    )
    parsers["up"].add_argument(
        "--try",
        dest="wishes",
        type=partial(_names, tuple(what_runs.EXTRAS)),
        default=(),
        metavar="NAME[,NAME...]",
        help="these, too, if they can be had within two minutes each; status tells why one is not",
    )
    parsers["up"].add_argument(
        "--kafka", metavar="VERSION", help=f"another release of Kafka than {kafka.VERSION}"
    )
    parsers["restart"].add_argument(
        "service", choices=[one.name for one in what_runs.SERVICES] + [*what_runs.EXTRAS]
    )
    return parser.parse_args(arguments)


def _names(known: Sequence[str], text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if unknown := set(names) - set(known):
        raise argparse.ArgumentTypeError(
            f"{', '.join(sorted(unknown))}: choose from {', '.join(known)}"
        )
    return names


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    try:
        if options.command == "status":
            report = what_runs.status()
            print(json.dumps(report.document(), indent=2) if options.json else report.text())
            return 0 if report.complete else 1
        if options.command == "env":
            print("\n".join(what_runs.exports()))
        elif options.command == "up":
            if options.kafka:
                os.environ[kafka.RELEASE] = options.kafka
            print(stack.up(extras=options.extras, wishes=options.wishes))
        elif options.command == "down":
            print(stack.down())
        else:
            print(stack.restart(options.service))
    except StackError as error:
        print(f"scripts/stack {options.command}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
