"""The same services through Docker: docker-compose.yml, with our ports on the host's side."""

import os
import subprocess

from realstack.layout import ROOT
from realstack.service import Ports, StackError

PROJECT = "penstock-stack"
SERVICES = ("kafka", "minio", "torchserve")
# The variable of docker-compose.yml that sets each published port.
VARIABLES = {
    "PENSTOCK_STACK_KAFKA_PORT": "kafka",
    "PENSTOCK_STACK_MINIO_PORT": "minio",
    "PENSTOCK_STACK_TORCHSERVE_PORT": "torchserve",
}


def engine_answers() -> bool:
    """True if a Docker engine answers and its compose plugin is installed."""
    try:
        answers = [
            subprocess.run(["docker", *command], capture_output=True, check=False).returncode
            for command in (["info"], ["compose", "version"])
        ]
    except OSError:
        return False
    return answers == [0, 0]


def variables(ports: Ports) -> dict[str, str]:
    return {variable: str(ports[name]) for variable, name in VARIABLES.items()}


def _compose(ports: Ports, *arguments: str) -> str:
    answer = subprocess.run(
        ["docker", "compose", "-f", str(ROOT / "docker-compose.yml"), "-p", PROJECT, *arguments],
        env={**os.environ, **variables(ports)},
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        raise StackError(f"docker compose {arguments[0]} failed:\n{answer.stderr[-2000:]}")
    return answer.stdout


def up(ports: Ports) -> None:
    """Returns when all health checks pass. A second call restarts only services that changed or
    ended.
    """
    _compose(ports, "up", "--detach", "--build", "--wait", *SERVICES)


def down(ports: Ports) -> None:
    _compose(ports, "down", "--volumes", "--remove-orphans")


def restart(ports: Ports, service: str) -> None:
    _compose(ports, "up", "--detach", "--force-recreate", "--no-deps", "--wait", service)


def running(ports: Ports) -> set[str]:
    return set(_compose(ports, "ps", "--services", "--status", "running").split()) & set(SERVICES)
