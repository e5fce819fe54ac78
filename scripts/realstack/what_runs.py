"""Which services there are, which of them run, and where a client finds them.

Rule: this file starts and stops nothing. Owner: `stack`.
"""

import shlex
from dataclasses import dataclass

from realstack import compose, layout, minio
from realstack.gcs_and_azure import AZURE_ACCOUNT, AZURE_KEY, Azurite, FakeGcs
from realstack.kafka import Kafka
from realstack.layout import State
from realstack.minio import Minio
from realstack.model_servers import MODEL, MODEL_SERVERS, SOCKET, TorchServe
from realstack.service import Extra, Service, StackError

KAFKA, MINIO, TORCHSERVE = Kafka(), Minio(), TorchServe()
# These services are started only if `up` is asked for them.
EXTRAS: dict[str, Extra] = {extra.name: extra for extra in (*MODEL_SERVERS, FakeGcs(), Azurite())}
# The services in the order of starting. Kafka comes before MinIO, because MinIO announces to Kafka,
# and gives up if it finds no broker.
SERVICES: tuple[Service, ...] = (KAFKA, MINIO, TORCHSERVE)


@dataclass(frozen=True)
class Report:
    state: State | None
    running: frozenset[str]

    @property
    def complete(self) -> bool:
        return all(service.name in self.running for service in services_of(self.state))

    def document(self) -> dict[str, object]:
        """For programs: the address of each service, and the process of each local one."""
        if self.state is None:
            return {"how": None, "services": {}, "missing": {}, "torch_python": None}
        services = {
            service.name: {
                "running": service.name in self.running,
                "address": f"127.0.0.1:{self.state.ports[service.name]}",
                "pid": process.pid if (process := self.state.processes.get(service.name)) else None,
                "log": str(layout.home() / f"{service.name}.log"),
            }
            for service in services_of(self.state)
        }
        local = self.state.how == "local"
        python = str(TORCHSERVE.python) if local else None
        return {
            "how": self.state.how,
            "services": services,
            "missing": self.state.missing,
            "torch_python": python,
        }

    def text(self) -> str:
        if self.state is None:
            return "the stack is down"
        lines = []
        for service in services_of(self.state):
            running = "up" if service.name in self.running else "down"
            process = self.state.processes.get(service.name)
            place = f"pid {process.pid}" if process else "container"
            port = self.state.ports[service.name]
            lines.append(f"{service.name:<11} {running:<5} {place:<11} 127.0.0.1:{port}")
        summary = "is up" if self.complete else "is not complete: scripts/stack up"
        return "\n".join([*lines, f"the stack ({self.state.how}) {summary}"])


def status() -> Report:
    state = layout.load()
    return Report(state, frozenset(running_services(state) if state else ()))


def services_of(state: State | None) -> list[Service]:
    """The services of this stack: the usual three, and the services that were asked for by name."""
    others = [one for name, one in EXTRAS.items() if state and name in state.processes]
    return [*SERVICES, *others]


def running_services(state: State) -> set[str]:
    local = {name for name, process in state.processes.items() if process.running}
    return local | compose.running(state.ports) if state.how == "docker" else local


def required() -> State:
    state = layout.load()
    if state is None:
        raise StackError("the stack is down; start it with scripts/stack up")
    return state


def exports() -> list[str]:
    """Export lines for clients of the services. A variable without `__` in its name is no setting
    of Penstock.
    """
    state = required()
    ports = state.ports
    values = {
        "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{ports['kafka']}",
        "PENSTOCK_KAFKA__INPUT_TOPIC": minio.EVENTS_TOPIC,
        "PENSTOCK_OBJECTS__ENDPOINT_URL": f"http://127.0.0.1:{ports['minio']}",
        "PENSTOCK_OBJECTS__KEY": minio.KEY,
        "PENSTOCK_OBJECTS__SECRET": minio.SECRET,
        "PENSTOCK_OBJECTS__REGION": minio.REGION,
        "PENSTOCK_MODEL__URL": f"http://127.0.0.1:{ports['torchserve']}",
        "PENSTOCK_MODEL__NAME": MODEL,
        "PENSTOCK_OUTPUT__TOPIC": "predictions",
        "PENSTOCK_OUTPUT__DLQ_TOPIC": "predictions.dlq",
        "PENSTOCK_STACK_BUCKET": minio.BUCKET,
        "PENSTOCK_STACK_EVENTS_ARN": minio.EVENTS_ARN,
    }
    # In a container TorchServe registers no models.
    socket = layout.home() / TORCHSERVE.name / SOCKET
    if socket.exists():
        values["PENSTOCK_MODEL__MANAGEMENT_URL"] = f"unix://{socket}"
        values["PENSTOCK_STACK_TORCHSERVE_MANAGEMENT"] = str(socket)
        values["PENSTOCK_STACK_TORCHSERVE_BIN"] = str(TORCHSERVE.python.parent)
    for server in EXTRAS.values():
        for port in server.ports if server.name in state.processes else ():
            values[f"PENSTOCK_STACK_{port.upper()}"] = f"127.0.0.1:{ports[port]}"
    if "azure" in state.processes:
        values["PENSTOCK_STACK_AZURE_ACCOUNT"] = AZURE_ACCOUNT
        values["PENSTOCK_STACK_AZURE_KEY"] = AZURE_KEY
    return [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
