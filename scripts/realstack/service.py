"""The promises that each service keeps to the stack: build, configure, probe; and the errors, each
a text for a person and an exit code for a script.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

Ports = Mapping[str, int]


@dataclass(frozen=True)
class Launch:
    """How to start a service."""

    argv: list[str]
    env: Mapping[str, str] = field(default_factory=dict)


class Service(Protocol):
    """One service; `name` is also the name of its port, its folder and its log."""

    name: str

    def build(self) -> None:
        """Download or build whatever the cache does not have yet."""
        ...

    def configure(self, folder: Path, ports: Ports) -> Launch:
        """Write the service's configuration into `folder`, where its data are kept as well."""
        ...

    def probe(self, ports: Ports) -> None:
        """Use the service once as a client would, and create what every client needs. Raises
        `NotReady`.
        """
        ...


class Extra(Service, Protocol):
    """A service that is started only if it is asked for by name."""

    @property
    def ports(self) -> tuple[str, ...]: ...

    def build(self, within_s: float | None = None) -> None:
        """Download or build, like `Service.build`. With `within_s`: give up after that time."""
        ...


EXIT_FAILED = 1
EXIT_MISSING = 3


class StackError(Exception):
    """A service did not come up, or is not up."""

    exit_code = EXIT_FAILED


class Missing(StackError):
    """The machine lacks something that only its owner can install."""

    exit_code = EXIT_MISSING


class NotReady(Exception):
    """A probe's answer: the service is not ready yet, and why."""
