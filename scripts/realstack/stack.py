"""Up, down and restart: decides what is done to which service, and when.

Rule: a command that is repeated changes nothing. While any service runs, ports and data are kept.
When no service runs, they are made anew. No service knows another service. Owner: `scripts/stack`.
"""

import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from realstack import compose, layout, prerequisites, processes
from realstack.layout import How, State
from realstack.model_servers import TORCHVISION, archive_fingerprint
from realstack.service import Extra, NotReady, Service, StackError
from realstack.what_runs import (
    EXTRAS,
    KAFKA,
    MINIO,
    SERVICES,
    TORCHSERVE,
    required,
    running_services,
    services_of,
)

# On two idle cores Kafka needs about 4 s and TorchServe 3 s. On busy cores both need over ten times
# as long.
READY_S = 90.0
# The time in which an optional model server must be built. At 5 MB/s, which any package index can
# deliver, its 450 MB arrive within this time.
WISH_S = 120.0
PROBE_PAUSE_S = 0.1


def up(how: How | None = None, extras: Sequence[str] = (), wishes: Sequence[str] = ()) -> str:
    """Start what does not run. `how`: by Docker or as local processes; None: Docker if an engine
    answers. `how` counts only when nothing runs yet. `extras`: further services to start. `wishes`:
    further services that are started if they can be built in time.
    """
    with layout.locked():
        begun = time.monotonic()
        state = layout.load()
        if state is None or not running_services(state):
            layout.forget()
            how = how or ("docker" if compose.engine_answers() else "local")
            state = State(how, layout.free_ports())
        started = _up_in_docker(state) if state.how == "docker" else _up_locally(state)
        # Services that an earlier `up` was asked for belong to the stack until `down`.
        needed = {*extras, *state.processes}
        wanted = [one for name, one in EXTRAS.items() if name in {*needed, *wishes}]
        started += _up_extras(state, wanted, optional={*wishes} - needed)
        if TORCHVISION in extras:
            if state.how == "docker":
                raise StackError("torchvision is only added to a TorchServe that runs locally")
            TORCHSERVE.add_torchvision()
        seconds = time.monotonic() - begun
        what = f"started {', '.join(started)} in {seconds:.0f} s" if started else "was up already"
        return f"the stack ({state.how}) is up: {what}"


def up_alone(name: str) -> None:
    """Start only Kafka, MinIO or TorchServe, as a local process. No stack may run in this home."""
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
    running = running_services(state)
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
    """Start these further services. An `optional` service that cannot be built is noted and left
    out.
    """
    running = running_services(state)
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
    # All services are built at the same time, because downloads wait for the network while MinIO's
    # build uses the cores.
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
    """Wait until the service answers its probe. If it does not answer at once, say at the end how
    long it took.
    """
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
    """Build the service. If there was anything to do, say how long it took. The first build takes
    minutes.
    """
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
        for service in reversed(services_of(state)):
            if service.name in state.processes:
                processes.stop(state.processes[service.name])
        layout.forget()
        return "the stack is down: services stopped, data removed"


def restart(name: str) -> str:
    with layout.locked():
        state = required()
        service = next((one for one in services_of(state) if one.name == name), None)
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
