"""Up, down, status, env, restart: what is done to which service, and when.

Rule: repeating a command does nothing more. Ports and data are kept while any service runs, and
chosen anew when none does. Services know only themselves.
"""

import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from realstack import azure, compose, layout, minio, prerequisites, processes
from realstack.azure import Azurite
from realstack.errors import NotReady, StackError
from realstack.gcs import FakeGcs
from realstack.kafka import Kafka
from realstack.layout import How, State
from realstack.minio import Minio
from realstack.model_server import MODEL_SERVERS
from realstack.service import Extra, Service
from realstack.torchserve import MODEL, TorchServe, archive_fingerprint

KAFKA, MINIO, TORCHSERVE = Kafka(), Minio(), TorchServe()
# Started only if `up` is asked for them.
EXTRAS: dict[str, Extra] = {extra.name: extra for extra in (*MODEL_SERVERS, FakeGcs(), Azurite())}
# In the order of starting: MinIO announces to Kafka, and gives up if it finds no broker.
SERVICES: tuple[Service, ...] = (KAFKA, MINIO, TORCHSERVE)
# Kafka needs about 4 s and TorchServe 3 s on two idle cores; on busy ones over ten times that.
READY_S = 90.0
# Time to build an optional model server: 450 MB at 5 MB/s, which any package index can deliver.
WISH_S = 120.0
PROBE_PAUSE_S = 0.1


@dataclass(frozen=True)
class Report:
    state: State | None
    running: frozenset[str]

    @property
    def complete(self) -> bool:
        return all(service.name in self.running for service in _begun(self.state))

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
            for service in _begun(self.state)
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
        for service in _begun(self.state):
            running = "up" if service.name in self.running else "down"
            process = self.state.processes.get(service.name)
            place = f"pid {process.pid}" if process else "container"
            port = self.state.ports[service.name]
            lines.append(f"{service.name:<11} {running:<5} {place:<11} 127.0.0.1:{port}")
        summary = "is up" if self.complete else "is not complete: scripts/stack up"
        return "\n".join([*lines, f"the stack ({self.state.how}) {summary}"])


def status() -> Report:
    state = layout.load()
    return Report(state, frozenset(_running(state) if state else ()))


def _begun(state: State | None) -> list[Service]:
    """The services that run by default, and the others that were asked for."""
    others = [one for name, one in EXTRAS.items() if state and name in state.processes]
    return [*SERVICES, *others]


def _running(state: State) -> set[str]:
    local = {name for name, process in state.processes.items() if process.running}
    return local | compose.running(state.ports) if state.how == "docker" else local


def up(how: How | None = None, extras: Sequence[str] = (), wishes: Sequence[str] = ()) -> str:
    """`how` is chosen when nothing runs: by Docker if an engine answers, unless the caller says
    otherwise. `extras` are started beside the services that run, and of the `wishes` those that can
    be built in time.
    """
    with layout.locked():
        begun = time.monotonic()
        state = layout.load()
        if state is None or not _running(state):
            layout.forget()
            how = how or ("docker" if compose.engine_answers() else "local")
            state = State(how, layout.free_ports())
        started = _up_in_docker(state) if state.how == "docker" else _up_locally(state)
        # Services that were asked for before belong to the stack until `down`.
        needed = {*extras, *state.processes}
        wanted = [one for name, one in EXTRAS.items() if name in {*needed, *wishes}]
        started += _up_extras(state, wanted, optional={*wishes} - needed)
        seconds = time.monotonic() - begun
        what = f"started {', '.join(started)} in {seconds:.0f} s" if started else "was up already"
        return f"the stack ({state.how}) is up: {what}"


def up_alone(name: str) -> None:
    """Start one of Kafka, MinIO, TorchServe as a local process, in a home where nothing runs."""
    with layout.locked():
        state = State("local", layout.free_ports())
        service = next(one for one in SERVICES if one.name == name)
        _build()
        _launch(service, state)
        _wait(service, state)


def _up_in_docker(state: State) -> list[str]:
    state.save()
    before = compose.running(state.ports)
    compose.up(state.ports)
    for service in SERVICES:
        _wait(service, state)
    return [service.name for service in SERVICES if service.name not in before]


def _up_locally(state: State) -> list[str]:
    running = _running(state)
    if state.archive != archive_fingerprint() and "torchserve" in running:
        print("the model's sources changed: restarting TorchServe", file=sys.stderr)
        processes.stop(state.processes["torchserve"])
        running.discard("torchserve")
    absent = [service for service in SERVICES if service.name not in running]
    if absent:
        _build()
        _start(absent, state)
    for service in SERVICES:
        if service not in absent:
            _wait(service, state)
    return [service.name for service in absent]


def _up_extras(state: State, wanted: list[Extra], optional: Collection[str]) -> list[str]:
    """Start the extras. An `optional` one that cannot be built is left out and noted."""
    running = _running(state)
    absent = [server for server in wanted if server.name not in running]
    names = {port for server in absent for port in server.ports} - state.ports.keys()
    state.ports |= layout.free_ports(names)
    for server in wanted:
        state.missing.pop(server.name, None)

    @contextmanager
    def perhaps(server: Extra) -> Iterator[None]:
        try:
            yield
        except StackError as error:
            if server.name not in optional:
                raise
            state.missing[server.name] = str(error)
            if process := state.processes.pop(server.name, None):
                processes.stop(process)

    with ThreadPoolExecutor() as pool:
        limits = {server: WISH_S if server.name in optional else None for server in absent}
        builds = {
            server: pool.submit(_timed, server, partial(server.build, limits[server]))
            for server in absent
        }
        for server, building in builds.items():
            with perhaps(server):
                building.result()
    started = [server for server in absent if server.name not in state.missing]
    for server in started:
        _launch(server, state)
    for server in wanted:
        if server.name not in state.missing:
            with perhaps(server):
                _wait(server, state)
    state.save()
    return [server.name for server in started if server.name not in state.missing]


def _build() -> None:
    prerequisites.ensure(kafka_is_built=KAFKA.jars.exists(), minio_is_built=MINIO.binary.exists())
    # Their downloads wait for the network while MinIO's build uses the cores.
    with ThreadPoolExecutor() as pool:
        for building in [pool.submit(_timed, each, each.build) for each in SERVICES]:
            building.result()


def _start(absent: list[Service], state: State) -> None:
    """Start Kafka and TorchServe side by side, and MinIO when Kafka answers."""
    early = [service for service in absent if service is not MINIO]
    for service in early:
        _launch(service, state)
    if MINIO in absent:
        _wait(KAFKA, state)
        _launch(MINIO, state)
    for service in absent:
        _wait(service, state)


def _launch(service: Service, state: State) -> None:
    folder = layout.home() / service.name
    folder.mkdir(exist_ok=True)
    launch = service.configure(folder, state.ports)
    log = layout.home() / f"{service.name}.log"
    state.processes[service.name] = processes.start(
        launch.argv, log=log, cwd=folder, env=launch.env
    )
    if service is TORCHSERVE:
        state.archive = archive_fingerprint()
    state.save()


def _wait(service: Service, state: State) -> None:
    """Wait until the service can really be used, and say so if that took a moment."""
    begun, is_up_already = time.monotonic(), True
    deadline = begun + READY_S
    log = layout.home() / f"{service.name}.log"
    while True:
        try:
            service.probe(state.ports)
        except NotReady as reason:
            is_up_already = False
            process = state.processes.get(service.name)
            if process is not None and not process.running:
                raise StackError(f"{service.name} ended:\n{processes.tail(log)}") from reason
            if time.monotonic() > deadline:
                raise StackError(f"{reason} (for {READY_S:.0f} s; its log: {log})") from reason
        else:
            if not is_up_already:
                _say(service, f"answers, after {time.monotonic() - begun:.0f} s")
            return
        time.sleep(PROBE_PAUSE_S)


def _timed(service: Service, build: Callable[[], None]) -> None:
    """Build, and say so if there was something to do: the first time it takes minutes."""
    begun = time.monotonic()
    build()
    if (seconds := time.monotonic() - begun) >= 1:
        _say(service, f"fetched and built in {seconds:.0f} s")


def _say(service: Service, what: str) -> None:
    print(f"{service.name}: {what}", file=sys.stderr, flush=True)


def down() -> str:
    with layout.locked():
        state = layout.load()
        if state is None:
            return "the stack is down: nothing was running"
        if state.how == "docker":
            compose.down(state.ports)
        for service in reversed(_begun(state)):
            if service.name in state.processes:
                processes.stop(state.processes[service.name])
        layout.forget()
        return "the stack is down: services stopped, data removed"


def restart(name: str) -> str:
    with layout.locked():
        state = _required()
        service = next((one for one in _begun(state) if one.name == name), None)
        if service is None:
            raise StackError(f"{name} is not up; start it with scripts/stack up --with {name}")
        if state.how == "docker" and name not in EXTRAS:
            compose.restart(state.ports, name)
        else:
            (EXTRAS[name].build if name in EXTRAS else _build)()
            if name in state.processes:
                processes.stop(state.processes[name])
            _launch(service, state)
        _wait(service, state)
        return f"{name} is up again on 127.0.0.1:{state.ports[name]}"


def _required() -> State:
    state = layout.load()
    if state is None:
        raise StackError("the stack is down; start it with scripts/stack up")
    return state


def exports() -> list[str]:
    """Variables for clients of the services; names without `__` are not Penstock's settings."""
    state = _required()
    ports = state.ports
    management_url = f"http://127.0.0.1:{ports['torchserve_management']}"
    values = {
        "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{ports['kafka']}",
        "PENSTOCK_KAFKA__INPUT_TOPIC": minio.EVENTS_TOPIC,
        "PENSTOCK_OBJECTS__ENDPOINT_URL": f"http://127.0.0.1:{ports['minio']}",
        "PENSTOCK_OBJECTS__KEY": minio.KEY,
        "PENSTOCK_OBJECTS__SECRET": minio.SECRET,
        "PENSTOCK_OBJECTS__REGION": minio.REGION,
        "PENSTOCK_MODEL__URL": f"http://127.0.0.1:{ports['torchserve']}",
        "PENSTOCK_MODEL__NAME": MODEL,
        "PENSTOCK_MODEL__MANAGEMENT_URL": management_url,
        "PENSTOCK_OUTPUT__TOPIC": "predictions",
        "PENSTOCK_OUTPUT__DLQ_TOPIC": "predictions.dlq",
        "PENSTOCK_STACK_TORCHSERVE_MANAGEMENT_URL": management_url,
        "PENSTOCK_STACK_BUCKET": minio.BUCKET,
        "PENSTOCK_STACK_EVENTS_ARN": minio.EVENTS_ARN,
    }
    for server in EXTRAS.values():
        for port in server.ports if server.name in state.processes else ():
            values[f"PENSTOCK_STACK_{port.upper()}"] = f"127.0.0.1:{ports[port]}"
    if "azure" in state.processes:
        values["PENSTOCK_STACK_AZURE_ACCOUNT"] = azure.ACCOUNT
        values["PENSTOCK_STACK_AZURE_KEY"] = azure.KEY
    return [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
