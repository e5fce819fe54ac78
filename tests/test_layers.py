"""Imports go one way, and a client library is known in one place each."""

import ast
import re
from collections.abc import Collection, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import consumers

ROOT = Path(__file__).parent.parent

# What each part may import of ours: every file and folder of `consumers/` has its line.
MAY_IMPORT: dict[str, set[str]] = {
    "schemas": set(),
    "consumers.errors": set(),
    "consumers.variables": {"consumers.errors"},
    "consumers.config": {"consumers.errors", "consumers.variables"},
    "consumers.logs": set(),
    "consumers.clock": set(),
    "consumers.shown": {"consumers.core"},
    "consumers.telemetry": set(),
    "consumers.budget": set(),
    "consumers.threads": set(),
    "consumers.core": {"consumers.errors", "schemas"},
    "consumers.plugins": {"consumers.errors"},
    "consumers.requests": {"consumers.core", "consumers.errors", "consumers.plugins"},
    "consumers.formats": {
        "consumers.core",
        "consumers.errors",
        "consumers.plugins",
        "consumers.process",
    },
    "consumers.decoders": {
        "consumers.core",
        "consumers.errors",
        "consumers.formats",
        "consumers.process",
    },
    "consumers.encodings": {"consumers.core", "schemas"},
    "consumers.ports": {"consumers.core"},
    "consumers.services": {
        "consumers.core",
        "consumers.errors",
        "consumers.ports",
        "consumers.telemetry",
    },
    "consumers.process": {"consumers.errors"},
    "consumers.dedupe": {"consumers.core", "schemas"},
    "consumers.watchdog": {
        "consumers.core",
        "consumers.errors",
        "consumers.lane",
        "consumers.ports",
        "consumers.telemetry",
    },
    "consumers.lane": {
        "consumers.budget",
        "consumers.core",
        "consumers.ports",
    },
    "consumers.stages": {
        "consumers.decoders",
        "consumers.core",
        "consumers.encodings",
        "consumers.formats",
        "consumers.ports",
        "consumers.lane",
        "consumers.budget",
        "consumers.errors",
        "consumers.services",
        "consumers.dedupe",
        "consumers.threads",
        "consumers.telemetry",
        "schemas",
    },
    "consumers.takeover": {
        "consumers.core",
        "consumers.errors",
        "consumers.lane",
        "consumers.ports",
        "consumers.stages",
        "consumers.telemetry",
    },
    "consumers.track": {
        "consumers.decoders",
        "consumers.budget",
        "consumers.core",
        "consumers.dedupe",
        "consumers.formats",
        "consumers.ports",
        "consumers.services",
        "consumers.stages",
        "consumers.telemetry",
    },
    "consumers.wiring": {
        "consumers.decoders",
        "consumers.budget",
        "consumers.core",
        "consumers.dedupe",
        "consumers.formats",
        "consumers.lane",
        "consumers.services",
        "consumers.ports",
        "consumers.stages",
        "consumers.telemetry",
        "consumers.track",
        "consumers.watchdog",
    },
    "consumers.pipeline": {
        "consumers.core",
        "consumers.process",
        "consumers.errors",
        "consumers.wiring",
        "consumers.lane",
        "consumers.ports",
        "consumers.stages",
        "consumers.takeover",
        "consumers.telemetry",
    },
    "consumers.adapters": {
        "consumers.threads",
        "consumers.config",
        "consumers.core",
        "consumers.process",
        "consumers.errors",
        "consumers.ports",
        "consumers.requests",
        "schemas",
    },
    "consumers.testing": {
        "consumers.decoders",
        "consumers.encodings",
        "consumers.adapters",
        "consumers.core",
        "consumers.errors",
        "consumers.wiring",
        "consumers.formats",
        "consumers.lane",
        "consumers.pipeline",
        "consumers.ports",
        "consumers.stages",
        "consumers.telemetry",
        "consumers.track",
        "schemas",
    },
    "consumers.handlers": set(),
    "consumers.verify": {
        "consumers.encodings",
        "consumers.errors",
        "consumers.routing",
        "consumers.adapters",
        "consumers.config",
        "consumers.core",
        "consumers.ports",
        "schemas",
    },
    "consumers.dlq": {
        "consumers.adapters",
        "consumers.clock",
        "consumers.config",
        "consumers.core",
        "consumers.errors",
        "consumers.ports",
        "consumers.shown",
        "schemas",
    },
    "consumers.ops": {
        "consumers.adapters",
        "consumers.clock",
        "consumers.config",
        "consumers.core",
        "consumers.errors",
        "consumers.lane",
        "consumers.pipeline",
        "consumers.ports",
        "consumers.process",
        "consumers.requests",
        "consumers.services",
        "consumers.telemetry",
        "consumers.shown",
        "schemas",
    },
    "consumers.scenes": {
        "consumers.adapters",
        "consumers.clock",
        "consumers.config",
        "consumers.errors",
        "consumers.ops",
        "consumers.ports",
        "consumers.process",
        "schemas",
    },
    "consumers.embedded": {
        "consumers.core",
        "consumers.errors",
        "consumers.handlers",
        "consumers.process",
    },
    "consumers.routing": {
        "consumers.config",
        "consumers.core",
        "consumers.errors",
        "consumers.variables",
    },
    "consumers.row_settings": {
        "consumers.config",
        "consumers.errors",
        "consumers.formats",
        "consumers.requests",
    },
    "consumers.input_settings": {
        "consumers.adapters",
        "consumers.config",
        "consumers.core",
        "consumers.errors",
    },
    "consumers.result_settings": {
        "consumers.config",
        "consumers.core",
        "consumers.encodings",
        "consumers.errors",
        "consumers.stages",
    },
    "consumers.settings": {
        "consumers.input_settings",
        "consumers.result_settings",
        "consumers.routing",
        "consumers.row_settings",
        "consumers.adapters",
        "consumers.config",
        "consumers.core",
        "consumers.errors",
        "consumers.lane",
        "consumers.requests",
        "consumers.services",
        "consumers.stages",
        "consumers.track",
        "consumers.wiring",
        "schemas",
    },
    "consumers.app": {
        "consumers.decoders",
        "consumers.routing",
        "consumers.stages",
        "consumers.adapters",
        "consumers.clock",
        "consumers.config",
        "consumers.errors",
        "consumers.ops",
        "consumers.pipeline",
        "consumers.ports",
        "consumers.process",
        "consumers.services",
        "consumers.settings",
        "consumers.telemetry",
        "consumers.wiring",
    },
    "consumers.replay": {
        "consumers.adapters",
        "consumers.app",
        "consumers.clock",
        "consumers.config",
        "consumers.core",
        "consumers.errors",
        "consumers.library",
        "consumers.pipeline",
        "consumers.ports",
        "consumers.process",
        "consumers.services",
        "consumers.routing",
        "consumers.track",
        "consumers.verify",
        "consumers.wiring",
        "consumers.shown",
        "schemas",
    },
    "consumers.library": {
        "consumers.decoders",
        "consumers.variables",
        "consumers.adapters",
        "consumers.clock",
        "consumers.config",
        "consumers.errors",
        "consumers.pipeline",
        "consumers.ports",
        "consumers.requests",
        "consumers.result_settings",
        "consumers.results",
        "consumers.services",
        "consumers.settings",
        "consumers.stages",
        "consumers.telemetry",
        "consumers.wiring",
        "schemas",
    },
    "consumers.results": {"consumers.errors", "schemas"},
    "consumers.bench": {
        "consumers.adapters",
        "consumers.config",
        "consumers.core",
        "consumers.errors",
        "consumers.formats",
        "consumers.ports",
        "consumers.process",
        "consumers.requests",
        "consumers.row_settings",
        "schemas",
    },
    "consumers.demo": {
        "consumers.adapters",
        "consumers.clock",
        "consumers.config",
        "consumers.errors",
        "consumers.ports",
        "consumers.process",
        "consumers.scenes",
        "consumers.variables",
        "consumers.verify",
        "schemas",
    },
    "consumers.commands": {
        "consumers.routing",
        "consumers.adapters",
        "consumers.app",
        "consumers.bench",
        "consumers.config",
        "consumers.demo",
        "consumers.dlq",
        "consumers.errors",
        "consumers.library",
        "consumers.logs",
        "consumers.ops",
        "consumers.process",
        "consumers.replay",
        "consumers.scenes",
        "consumers.settings",
        "consumers.verify",
        "schemas",
    },
    "consumers.cli": {"consumers.commands", "consumers.process"},
    "consumers.__main__": {"consumers.cli"},
    "consumers.__init__": {"consumers.library", "consumers.results"},
}

# Client libraries and the only files that may import them.
CLIENTS: dict[str, tuple[str, ...]] = {
    "aiokafka": (
        "consumers/adapters/kafka_",
        # The bench writes and reads with a client of its own: it measures the product's.
        "consumers/bench/",
    ),
    "obstore": ("consumers/adapters/objects_", "consumers/adapters/results_"),
    "s3fs": ("consumers/adapters/objects_",),
    "botocore": ("consumers/adapters/objects_", "consumers/bench/place.py"),
    "aiobotocore": ("consumers/adapters/objects_",),
    "aiohttp": (
        "consumers/adapters/",
        "consumers/ops/",
        "consumers/embedded/",
        "consumers/bench/",
        "consumers/demo/",
        "consumers/scenes/health.py",
    ),
    "grpc": ("consumers/adapters/oip_",),
    "google": ("consumers/adapters/oip_messages.py",),
    "confluent_kafka": ("consumers/adapters/confluent_", "consumers/embedded/"),
    "av": ("consumers/formats/video.py",),
    "soundfile": ("consumers/formats/audio.py",),
    "PIL": ("consumers/formats/pictures.py",),
    "faust": ("consumers/scenes/faust_",),
    "prometheus_client": (
        "consumers/telemetry/",
        "consumers/ops/",
        "consumers/scenes/health.py",
    ),
    "click": ("consumers/commands/",),
}


def files() -> list[Path]:
    return sorted([*(ROOT / "consumers").rglob("*.py"), *(ROOT / "schemas").rglob("*.py")])


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def imports(file: Path) -> Iterator[str]:
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            module = node.module or ""
            if module == "consumers":
                yield from (f"consumers.{alias.name}" for alias in node.names)
            else:
                yield module


def part(module: str) -> str:
    words = module.split(".")
    return words[0] if words[0] == "schemas" else ".".join(words[:2])


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def files_imported(file: Path, modules: Collection[str]) -> set[str]:
    """Those of `modules` that it imports anywhere: for the types alone and in functions, too."""
    found: set[str] = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= below & set(modules) or {node.module}
    return (found & set(modules)) - {module_of(file)}


def test_imports_go_one_way() -> None:
    wrong: dict[str, set[str]] = {}
    for file in files():
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        here = part(module)
        ours = {
            part(name) for name in imports(file) if name.split(".")[0] in ("consumers", "schemas")
        }
        if beyond := ours - {here} - MAY_IMPORT[here]:
            wrong[module] = beyond
    assert not wrong


def test_no_file_imports_itself_through_another() -> None:
    every = {module_of(file): file for file in files()}
    graph = {module: files_imported(file, every) for module, file in every.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the files


def test_no_part_imports_itself_through_another() -> None:
    graph = {name: below & MAY_IMPORT.keys() for name, below in MAY_IMPORT.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_no_part_of_the_pipeline_sees_the_configuration() -> None:
    """They get plain values, which `settings` makes of it."""
    parts = ["pipeline", "wiring", "takeover", "watchdog", "lane", "stages", "services", "formats"]
    waiting, seen = [f"consumers.{part}" for part in parts], set[str]()
    while waiting:
        seen.add(name := waiting.pop())
        waiting += MAY_IMPORT.get(name, set()) - seen
    assert not seen & {"consumers.config", "consumers.settings", "consumers.adapters"}


def test_every_room_is_on_the_map() -> None:
    rooms = {
        path.stem if path.suffix else f"{path.name}/"
        for path in (ROOT / "consumers").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    } - {"__init__", "__main__"}
    named = re.findall(r"^    (\S.*?)  +\S", str(consumers.__doc__), re.MULTILINE)
    on_map = {name for line in named for name in line.split(", ")}
    assert on_map == rooms


def test_a_client_library_is_known_in_one_place() -> None:
    wrong = [
        f"{name} imports {module}"
        for name, module in (
            (str(file.relative_to(ROOT)), module) for file in files() for module in imports(file)
        )
        if not name.startswith(CLIENTS.get(module.split(".")[0], ("",)))
    ]
    assert not wrong


def test_the_core_neither_waits_nor_looks_at_a_clock() -> None:
    for file in (ROOT / "consumers" / "core").glob("*.py"):
        assert not {"asyncio", "time", "datetime", "random"} & set(imports(file)), file
        assert not any(
            isinstance(node, ast.Await | ast.AsyncFunctionDef) for node in ast.walk(tree(file))
        )


# The files of scenes/ that decide.
SCENES_CORE = ("rules", "arrival", "state", "members", "marks", "slots", "site", "picture", "due")


def test_the_core_of_scenes_knows_no_clock_and_no_client() -> None:
    for name in SCENES_CORE:
        file = ROOT / "consumers" / "scenes" / f"{name}.py"
        below = {part(found) for found in imports(file) if found.startswith("consumers")}
        assert below <= {"consumers.scenes"}, file
        assert not {"asyncio", "time", "random", "faust"} & set(imports(file)), file
        assert not any(isinstance(node, ast.Await) for node in ast.walk(tree(file)))


def test_every_task_has_a_parent() -> None:
    for file in files():
        if file.name == "library.py":
            continue  # a generator cannot hold a TaskGroup across a yield: it awaits its task
        for node in ast.walk(tree(file)):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in ("create_task", "ensure_future")
                and isinstance(node.value, ast.Name)
            ):
                assert node.value.id not in ("asyncio", "loop"), f"{file}:{node.lineno}"
