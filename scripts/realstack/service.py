"""What the stack needs of each service."""

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
        """Write its configuration into `folder`, which also keeps its data."""
        ...

    def probe(self, ports: Ports) -> None:
        """Really use it once, and create what every user of it needs. Raises `NotReady`."""
        ...


class Extra(Service, Protocol):
    """A service that is started only if asked for by name; `ports` in their own order."""

    @property
    def ports(self) -> tuple[str, ...]: ...

    def build(self, within_s: float | None = None) -> None:
        """As for any service. With `within_s`: give up after that time."""
        ...
