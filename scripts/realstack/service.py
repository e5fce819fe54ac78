"""What the stack asks of a service, whichever it is."""

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
        """Fetch or build into the cache whatever is not there yet."""
        ...

    def configure(self, folder: Path, ports: Ports) -> Launch:
        """Write its configuration into `folder`, which keeps its data too."""
        ...

    def probe(self, ports: Ports) -> None:
        """Use it once, for real, and make what every user needs. Raises `NotReady`."""
        ...


class Extra(Service, Protocol):
    """A service that is started only when it is asked for by name; `ports` in their own order."""

    @property
    def ports(self) -> tuple[str, ...]: ...

    def build(self, within_s: float | None = None) -> None:
        """As any service; given up after `within_s`, if that is said."""
        ...
