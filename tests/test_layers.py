"""The house: imports go one way, without circles, and a client library is known in one folder."""

import ast
import re
from collections.abc import Collection, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import penstock

PACKAGE = Path(penstock.__file__).parent

# What each part may import of ours: every file and folder of the package has its line, in the
# order in which they rest on each other.
MAY_IMPORT: dict[str, str] = {
    "errors": "",
    "tools": "",
    "messages": "",
    "tools/handlers": "",
    "config": "errors",
    "packages": "errors",
    "process": "errors",
    "core": "errors messages",
    "terminal_text": "core",
    "logs": "terminal_text",
    "tools/embedded": "core errors tools/handlers packages process",
    "encodings": "core messages",
    "formats": "core errors messages packages",
    "ports": "core",
    "tracing": "core messages ports",
    "telemetry": "core ports tracing",
    "decoders": "core errors formats process",
    "failures": "core errors ports",
    "asking": "core errors failures ports process telemetry",
    "lane": "core messages ports",
    "adapters": "config core errors messages packages ports process",
    "plugins": "adapters core errors formats",
    "stages": (
        "asking core decoders encodings errors failures formats lane messages ports process "
        "telemetry tracing"
    ),
    "tools/dlq": "adapters config terminal_text core errors messages ports process",
    "pipeline": (
        "asking core decoders errors failures formats lane ports process stages telemetry tracing"
    ),
    "ops": (
        "adapters asking config core errors failures lane messages packages pipeline ports "
        "process telemetry terminal_text"
    ),
    "settings": (
        "adapters asking config core encodings errors formats lane messages pipeline stages tracing"
    ),
    "tools/simulation": (
        "adapters core decoders encodings errors formats lane messages pipeline ports process "
        "stages telemetry"
    ),
    "testing": "core errors formats ports tools/simulation",
    "scenes": "adapters config core errors messages ops packages ports process",
    "tools/bench": "adapters config core errors formats messages ports process settings",
    "library": (
        "adapters config decoders errors failures messages packages pipeline ports process "
        "settings stages telemetry terminal_text"
    ),
    "tools/verify": "adapters config core encodings errors messages ports settings terminal_text",
    "worker": (
        "adapters config decoders errors failures ops pipeline ports process settings stages "
        "telemetry"
    ),
    "__init__": "errors library messages",
    "tools/demo": (
        "adapters config errors formats messages ports process scenes terminal_text tools/verify"
    ),
    "tools/replay": (
        "adapters config core encodings errors failures library messages pipeline ports process "
        "settings terminal_text tools/verify worker"
    ),
    "tools/jobs": (
        "adapters config core errors failures formats messages pipeline ports process settings "
        "tools/replay worker"
    ),
    "tools/lint": "adapters config errors scenes settings",
    "tools/doctor": (
        "adapters asking config core decoders errors failures formats messages ops ports "
        "process settings"
    ),
    "commands": (
        "adapters tools/bench config tools/demo tools/dlq tools/doctor errors tools/jobs library "
        "tools/lint logs messages ops packages process tools/replay scenes settings terminal_text "
        "tools/verify worker"
    ),
    "cli": "commands process",
    "__main__": "cli",
}

# Client libraries and the only places that may import them.
CLIENTS: dict[str, tuple[str, ...]] = {
    "aiokafka": (
        "adapters/kafka/",
        # The bench writes with a client of its own: it measures the product's.
        "tools/bench/",
    ),
    "obstore": ("adapters/stores/", "adapters/result_stores/", "adapters/s3/"),
    "s3fs": ("adapters/s3/",),
    "botocore": ("adapters/s3/", "tools/bench/topics_and_bucket.py"),
    "aiobotocore": ("adapters/s3/",),
    "aiohttp": (
        "adapters/",
        "ops/",
        "tools/embedded/",
        "tools/bench/",
        "tools/demo/",
        "scenes/page.py",
    ),
    "grpc": ("adapters/model_servers/oip/",),
    "opentelemetry": ("adapters/otel/",),
    "google": ("adapters/model_servers/oip/grpc_protocol.py",),
    "confluent_kafka": ("adapters/confluent/", "tools/embedded/"),
    "av": ("formats/media/",),
    "PIL": ("formats/pictures/image.py",),
    "simplejpeg": ("formats/pictures/image.py",),
    "pillow_heif": ("formats/pictures/image.py",),
    "faust": ("scenes/faust_engine.py",),
    "prometheus_client": ("telemetry/", "ops/", "scenes/page.py", "worker/rekey.py"),
    "click": ("commands/",),
}

# So many files are still looked through by their names.
MOST_FILES = 22
MOST_FILES_AT_THE_ROOT = 10


def files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def nodes(file: Path) -> list[ast.AST]:
    """Of its syntax tree, each."""
    return list(ast.walk(ast.parse(file.read_text())))


def name_of(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix()


def imports(file: Path) -> Iterator[str]:
    """Modules, as far as they can be told from the names that are imported of them."""
    for node in nodes(file):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            if node.module == "penstock":
                yield from (f"penstock.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""


def part(module: str) -> str:
    """`core` of `penstock.core.window`, `tools/verify` of `penstock.tools.verify.promises`."""
    words = module.split(".")[1:]
    return "/".join(words[: 2 if words[:1] == ["tools"] else 1]) or "__init__"


def module_of(file: Path) -> str:
    words = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(words).removesuffix(".__init__")


def files_imported(file: Path, modules: Collection[str]) -> set[str]:
    """Those of `modules` that it imports anywhere: for the types alone and in functions, too."""
    found: set[str] = set()
    for node in nodes(file):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= below & set(modules) or {node.module}
    return (found & set(modules)) - {module_of(file)}


def privates(file: Path) -> set[str]:
    """Attributes of others that begin with `_`, but for the public ones of a namedtuple."""
    return {
        node.attr
        for node in nodes(file)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in ("_replace", "_asdict", "_fields")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    }


def test_imports_go_one_way() -> None:
    wrong: dict[str, set[str]] = {}
    for file in files():
        here = part(module_of(file))
        ours = {part(name) for name in imports(file) if name.split(".")[0] == "penstock"}
        if beyond := ours - {here} - set(MAY_IMPORT.get(here, "").split()):
            wrong[name_of(file)] = beyond
    for here in {part(module_of(file)) for file in files()} - MAY_IMPORT.keys():
        wrong[here] = {"give it a line in MAY_IMPORT, in its place"}
    assert not wrong, "a file imports a part that its own part may not import by MAY_IMPORT"


def test_no_file_imports_itself_through_another() -> None:
    every = {module_of(file): file for file in files()}
    graph = {module: files_imported(file, every) for module, file in every.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the files


def test_no_part_imports_itself_through_another() -> None:
    graph = {name: below.split() for name, below in MAY_IMPORT.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_no_room_of_the_core_imports_itself_through_another() -> None:
    rooms: dict[str, set[str]] = {}
    for file in (PACKAGE / "core").rglob("*/*.py"):
        names = (name.split(".") for name in imports(file))
        below = {words[2] for words in names if words[:2] == ["penstock", "core"]}
        rooms.setdefault(file.parent.name, set()).update(below - {file.parent.name})
    TopologicalSorter(rooms).prepare()  # raises CycleError


def test_no_part_of_the_pipeline_sees_the_configuration() -> None:
    """They get plain values, which `settings` makes of it."""
    waiting, seen = ["pipeline", "lane", "stages", "asking", "formats", "decoders"], set[str]()
    while waiting:
        seen.add(name := waiting.pop())
        waiting += set(MAY_IMPORT[name].split()) - seen
    assert not seen & {"config", "settings", "adapters"}


def test_no_part_of_the_worker_imports_a_tool() -> None:
    doors = {"commands", "cli", "__main__", "testing"}
    assert not {
        name
        for name, below in MAY_IMPORT.items()
        if name not in doors and not name.startswith("tools") and "tools/" in below
    }


def test_folders_can_be_looked_through() -> None:
    folders = {file.parent for file in files()}
    counts = {folder: len(list(folder.glob("*.py"))) for folder in folders}
    assert counts.pop(PACKAGE) <= MOST_FILES_AT_THE_ROOT
    assert counts.pop(PACKAGE / "commands")  # a file of each command's name
    assert not {name_of(folder): n for folder, n in counts.items() if n > MOST_FILES}


def test_every_room_is_on_the_map() -> None:
    def rooms(folder: Path) -> set[str]:
        return {
            path.stem if path.suffix else f"{path.name}/"
            for path in folder.iterdir()
            if path.suffix == ".py" or (path / "__init__.py").exists()
        } - {"__init__", "__main__"}

    named = re.findall(r"^(?: {4}| {6})(\S.*?)  +\S", str(penstock.__doc__), re.MULTILINE)
    on_map = {name for line in named for name in line.split(", ")}
    below = {
        name
        for part in ("core", "adapters", "formats", "tools")
        for name in rooms(PACKAGE / part)
        if name.endswith("/") or part != "formats"
    }
    assert on_map == rooms(PACKAGE) | below


def test_a_class_has_a_name_of_its_own() -> None:
    """So that a reader who meets a name knows which class it is. Only two ports share theirs with a
    section of the configuration, which is called like its table: it is written `config.Model`.
    """
    both = {"Model", "Objects"}
    owners: dict[str, list[str]] = {}
    for file in files():
        kinds = {node.name for node in nodes(file) if isinstance(node, ast.ClassDef)}
        if name_of(file) in ("config/sections.py", "config/model_sections.py"):
            kinds -= both
        for name in kinds:
            owners.setdefault(name, []).append(name_of(file))
    shared = {name: rooms for name, rooms in owners.items() if len(rooms) > 1}
    assert not shared, "rename all but one of each: the plain name stays where most use it"
    bare = [
        f"{name_of(file)}: config.{alias.name}"
        for file in files()
        for node in nodes(file)
        if isinstance(node, ast.ImportFrom) and node.module == "penstock.config"
        for alias in node.names
        if alias.name in both and not name_of(file).startswith("config/")
    ]
    assert not bare, "write a section of the configuration like this"


def test_a_client_library_is_known_in_one_place() -> None:
    wrong = [
        f"{name_of(file)} imports {module}"
        for file in files()
        for module in imports(file)
        if not name_of(file).startswith(CLIENTS.get(module.split(".")[0], ("",)))
    ]
    assert not wrong


def test_only_one_folder_touches_what_aiokafka_keeps_to_itself() -> None:
    folder = PACKAGE / "adapters" / "kafka"
    assert not {
        f"{name_of(file)} touches {name}"
        for file in folder.rglob("*.py")
        if "inside" not in file.parts
        for name in privates(file)
    }


def test_the_core_neither_waits_nor_looks_at_a_clock() -> None:
    for file in (PACKAGE / "core").rglob("*.py"):
        assert not {"asyncio", "time", "datetime", "random"} & set(imports(file)), file
        assert not any(isinstance(node, ast.Await | ast.AsyncFunctionDef) for node in nodes(file))


def test_the_core_of_scenes_knows_no_clock_and_no_client() -> None:
    for file in (PACKAGE / "scenes" / "core").glob("*.py"):
        ours = [name for name in imports(file) if name.startswith("penstock.")]
        known = ("penstock.scenes.core", "penstock.messages.", "penstock.errors")
        assert all(name.startswith(known) for name in ours), file
        assert not {"asyncio", "time", "random", "faust"} & set(imports(file)), file
        assert not any(isinstance(node, ast.Await) for node in nodes(file))


def test_every_task_has_a_parent() -> None:
    for file in files():
        if name_of(file) == "library/without_kafka.py":
            continue  # a generator cannot hold a TaskGroup across a yield: it awaits its task
        if name_of(file) == "process/hedged.py":
            continue  # a timer begins the second request: the first one awaits it, however it ends
        for node in nodes(file):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in ("create_task", "ensure_future")
                and isinstance(node.value, ast.Name)
            ):
                assert node.value.id not in ("asyncio", "loop"), f"{file}:{node.lineno}"
