"""Which real services the tests use, and how they come to run.

Rule: services that the environment names, else the stack if it is up, else containers of this
process's own where Docker answers, else the stack, which is started. What cannot be had is
`Unavailable`, with the reason for the summary. Several processes may run tests on the same
services.
"""

import fcntl
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from testcontainers.compose import DockerCompose

from penstock.process.children import free_port
from realstack import kafka, layout

ROOT = Path(__file__).resolve().parents[2]
STACK = ROOT / "scripts" / "stack"
EXIT_MISSING = 3
EXPORT = re.compile(r"export ([A-Z0-9_]+)=(.*)")
# The stack may run an older release, which whoever started it names to the tests, too.
needs_kafka_4 = pytest.mark.skipif(
    kafka.version().startswith("3."), reason="Kafka 4.0 brought the group protocol consumer"
)


class Unavailable(Exception):
    """The machine lacks what the services need."""


@dataclass(frozen=True)
class Services:
    """Where the services are; `torch_python` has torch, if the model runs beside us."""

    bootstrap_servers: str
    endpoint_url: str
    key: str
    secret: str
    region: str
    model_url: str
    model_name: str
    management_socket: str | None
    input_topic: str
    events_arn: str
    torch_python: str | None = None

    @classmethod
    def named_by(cls, environ: Mapping[str, str], torch_python: str | None = None) -> "Services":
        """From the variables that `scripts/stack env` prints."""
        return cls(
            bootstrap_servers=environ["PENSTOCK_KAFKA__BOOTSTRAP_SERVERS"],
            endpoint_url=environ["PENSTOCK_OBJECTS__ENDPOINT_URL"],
            key=environ["PENSTOCK_OBJECTS__KEY"],
            secret=environ["PENSTOCK_OBJECTS__SECRET"],
            region=environ.get("PENSTOCK_OBJECTS__REGION", "us-east-1"),
            model_url=environ["PENSTOCK_MODEL__URL"],
            model_name=environ.get("PENSTOCK_MODEL__NAME", "rows"),
            management_socket=environ.get("PENSTOCK_STACK_TORCHSERVE_MANAGEMENT"),
            input_topic=environ.get("PENSTOCK_KAFKA__INPUT_TOPIC", "refs"),
            events_arn=environ.get("PENSTOCK_STACK_EVENTS_ARN", "arn:minio:sqs::P:kafka"),
            torch_python=torch_python,
        )


class Topics(NamedTuple):
    """Topics of one test's own."""

    input: str
    output: str
    dlq: str


def find(cleanup: ExitStack, model_servers: Collection[str] = ()) -> Services:
    """The services of this session, started if need be; `cleanup` ends what is only ours. The
    `model_servers` are beside them if they can be had.
    """
    if "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS" in os.environ:
        return Services.named_by(os.environ, stack_status()["torch_python"])
    if stack_status()["how"] is None and _docker_answers():
        return _in_containers(cleanup)
    with _first_of_run() as is_first:
        if is_first or stack_status()["how"] is None:
            _up(["--try", ",".join(sorted(model_servers))] if model_servers else [])
    return Services.named_by(stack_exports(), stack_status()["torch_python"])


@contextmanager
def _first_of_run() -> Iterator[bool]:
    """Is this the first of the processes of one run? The others wait for it. Otherwise each would
    wait for two minutes anew for a model server that cannot be had.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    layout.home().mkdir(parents=True, exist_ok=True)
    with (layout.home() / "run").open("a+") as last:
        fcntl.flock(last, fcntl.LOCK_EX)
        last.seek(0)
        yield not run or last.read() != run
        last.truncate(0)
        last.write(run)


def _up(wishes: Sequence[str]) -> None:
    """What it says is to be seen while it builds."""
    said: list[str] = []
    with subprocess.Popen(
        [STACK, "up", *wishes], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as up:
        assert up.stdout
        for line in up.stdout:
            sys.stderr.write(line)
            said.append(line.rstrip())
    if up.returncode == EXIT_MISSING:
        raise Unavailable(said[-1])
    if up.returncode != 0:
        raise RuntimeError("\n".join(said))


def stack_status() -> dict[str, Any]:
    """What `scripts/stack status --json` tells: where each service is, and as which process."""
    answer = subprocess.run(
        [STACK, "status", "--json"], capture_output=True, text=True, check=False
    )
    document: dict[str, Any] = json.loads(answer.stdout)
    return document


def stack_exports() -> dict[str, str]:
    answer = subprocess.run([STACK, "env"], capture_output=True, text=True, check=True)
    pairs = (EXPORT.fullmatch(line) for line in answer.stdout.splitlines())
    return {pair[1]: shlex.split(pair[2])[0] for pair in pairs if pair}


def model_server(port: str) -> str:
    """Where a model server beside TorchServe listens, as `host:port`; it must have been asked for.

    Raises `Unavailable` if it was not.
    """
    address = _exports_of_session().get(f"PENSTOCK_STACK_{port.upper()}")
    if address is None:
        name = port.partition("_")[0]
        why = _missing_of_session().get(name, f"scripts/stack up --with {name}")
        raise Unavailable(f"{name} is not up: {why}")
    return address


@cache
def _exports_of_session() -> dict[str, str]:
    """Asking takes longer than most tests."""
    return stack_exports()


@cache
def _missing_of_session() -> dict[str, str]:
    missing: dict[str, str] = stack_status()["missing"]
    return missing


def _docker_answers() -> bool:
    commands = (["docker", "info"], ["docker", "compose", "version"])
    try:
        return all(
            subprocess.run(command, capture_output=True, check=False).returncode == 0
            for command in commands
        )
    except OSError:
        return False


def _in_containers(cleanup: ExitStack) -> Services:
    names = ("KAFKA", "MINIO", "TORCHSERVE")
    ports = {f"PENSTOCK_STACK_{name}_PORT": free_port() for name in names}
    settings = {**ports, "COMPOSE_PROJECT_NAME": f"penstock-test-{os.getpid()}"}
    folder = cleanup.enter_context(tempfile.TemporaryDirectory())
    env_file = Path(folder, "ports.env")
    env_file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    compose = DockerCompose(
        ROOT, build=True, env_file=str(env_file), services=["kafka", "minio", "torchserve"]
    )
    # `down` for all, as the services brought their one-shot helpers along.
    everything = DockerCompose(ROOT, env_file=str(env_file))
    cleanup.callback(everything.stop)
    compose.start()
    kafka, minio, torchserve = (f"127.0.0.1:{port}" for port in ports.values())
    return Services.named_by(
        {
            "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS": kafka,
            "PENSTOCK_OBJECTS__ENDPOINT_URL": f"http://{minio}",
            "PENSTOCK_OBJECTS__KEY": "penstock",
            "PENSTOCK_OBJECTS__SECRET": "penstock-secret",
            "PENSTOCK_MODEL__URL": f"http://{torchserve}",
        }
    )
