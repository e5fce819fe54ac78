"""The documentation says what the code does: keys, defaults, metrics, codes, commands, examples."""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints

import aiohttp
import click
import msgspec
import numpy as np
import orjson
import pytest
from prometheus_client import generate_latest

from penstock import config
from penstock.commands.root import cli
from penstock.config.all_sections import NAMED, SECTIONS, TABLES
from penstock.config.marks import marks, nested
from penstock.config.unknown_keys import keys_of
from penstock.errors import ErrorCode
from penstock.messages.codec import decode
from penstock.messages.dead_letter import decode_dead_letter
from penstock.messages.prediction import decode_head, decode_prediction
from penstock.messages.shadow import Disagreement, Summary, decode_shadow
from penstock.ops.members_page import MembersSource
from penstock.ops.page.page import Page
from penstock.telemetry.worker import Telemetry, TimeSpent
from scripts import docs_commands
from tests.support.memory import MemorySpans

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))]

LINE = 120

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TICKED = re.compile(r"^`([^`]+)`$")
_INLINE_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_COMMAND = re.compile(r"^(?:\s|\.venv/bin/|[A-Z_]+=\S+ )*penstock(?: |$)")

of_each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def section(page: Path, title: str) -> str:
    """The text below a heading of the second level."""
    text = page.read_text()
    match = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert match, f"{page.name} has no section {title}"
    return match[1]


def table(text: str) -> list[list[str]]:
    """The body rows of all tables; their cells without the ticks around a cell."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line[2:-2].split(" | ")] for line in lines]
    return [[_TICKED.sub(r"\1", cell) for cell in row] for row in cells]


def described(text: str) -> list[list[str]]:
    """Key, default and meaning of each line "- `key` (default): meaning"; without ticks around."""
    matches = re.findall(r"^- (`[^(]+`) \((.*?)\): (.*(?:\n  .*)*)", text, re.MULTILINE)
    rows = [[key, default, " ".join(meaning.split())] for key, default, meaning in matches]
    return [[_TICKED.sub(r"\1", cell) for cell in row] for row in rows]


def shown(default: Any) -> str:
    """A default as the documentation writes it."""
    if default is None or isinstance(default, bool):
        return "none" if default is None else str(default).lower()
    is_mib = isinstance(default, int) and default and default % config.MIB == 0
    return f"{default // config.MIB} MiB" if is_mib else str(default)


def defaults() -> dict[str, str]:
    """Every key as `section.key`, with its default."""
    tree = msgspec.to_builtins(config.Config())
    return {f"{name}.{key}": shown(value) for name in SECTIONS for key, value in tree[name].items()}


def choices(hint: Any) -> Iterator[str]:
    for inner in get_args(hint):
        if isinstance(inner, str):
            yield inner
        elif get_origin(inner) is not None:
            yield from choices(inner)


def exposed(page: str) -> dict[str, str]:
    """Name to type of the metrics on a page, without the client's time stamps."""
    found = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    return {name: kind for name, kind in found.items() if not name.endswith("_created")}


def words_of_commands(page: Path) -> Iterator[list[str]]:
    """What is behind `penstock` in code, at the beginning of a line or between ticks."""
    text = page.read_text()
    code = "\n".join([*text.splitlines(), *_INLINE_CODE.findall(text)])
    for line in code.splitlines():
        if _COMMAND.match(line):
            words = shlex.split(line, comments=True)
            begin = next(at for at, word in enumerate(words) if word.endswith("penstock"))
            yield words[begin + 1 :]


def options(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts}


def _lines_to_write(documented: Mapping[str, str], defaults: Mapping[str, str]) -> str:
    missing = [
        f"- `{name.rpartition('.')[2]}` ({default}): ... (in `{name.rpartition('.')[0]}`)"
        for name, default in defaults.items()
        if documented.get(name, "").strip("`") != default.strip("`")
    ]
    gone = sorted(documented.keys() - defaults.keys())
    return f"configuration.md: write {missing}; these keys are no more: {gone}"


def test_every_key_is_documented_with_its_default() -> None:
    page = DOCS / "configuration.md"
    documented = {
        f"{name}.{key}": default
        for name in SECTIONS
        for key, default, *_ in described(section(page, f"`{name}`"))
    }
    assert documented.items() == defaults().items(), _lines_to_write(documented, defaults())


def test_every_key_of_a_named_section_is_documented_with_its_default() -> None:
    for name, kind in NAMED.items():
        rows = described(section(DOCS / "configuration.md", f"`{name}`"))
        documented = {key: default for key, default, *_ in rows}
        assert documented == {key.name: _default(key) for key in msgspec.structs.fields(kind)}


def test_every_key_of_a_table_is_documented() -> None:
    rows = [
        row
        for title in ("`models` and `routes`", "`priorities`")
        for row in described(section(DOCS / "configuration.md", title))
    ]
    documented = {key for keys, *_ in rows for key in keys.replace("`", "").split(", ")}
    of_model = {key.name for key in msgspec.structs.fields(config.Model)} - {"name"}
    keys = {key for kind in TABLES.values() for key in keys_of(kind)}
    assert documented == keys - of_model | {"model"}


@pytest.mark.parametrize(
    ("title", "kind"), [("model.shadow", config.Shadow), ("kafka.oauth", config.OAuth)]
)
def test_every_key_of_a_nested_table_is_documented_with_its_default(
    title: str, kind: type[config.Section]
) -> None:
    rows = described(section(DOCS / "configuration.md", f"`{title}`"))
    keys = msgspec.structs.fields(kind)
    told = {key.name: "needed" if key.required else shown(_of(key)) for key in keys}
    assert {key: default for key, default, *_ in rows} == told


def _of(key: msgspec.structs.FieldInfo) -> Any:
    return key.default if key.default_factory is msgspec.NODEFAULT else key.default_factory()


def _default(key: msgspec.structs.FieldInfo) -> str:
    if key.required:
        return "required"
    return "none" if key.default is msgspec.NODEFAULT else shown(key.default)


def test_every_choice_of_a_key_is_named_where_the_key_is() -> None:
    for name, kind in SECTIONS.items():
        rows = {
            key: text for key, *text in described(section(DOCS / "configuration.md", f"`{name}`"))
        }
        for key, hint in get_type_hints(kind).items():
            default, told = rows.get(key, ("", ""))  # a missing row has a test of its own
            documented = set(_INLINE_CODE.findall(f"`{default}` {told}"))
            assert set(choices(hint)) <= documented, f"{name}.{key}"


def test_the_first_keys_to_change_have_true_defaults() -> None:
    rows = described(section(DOCS / "configuration.md", "The first keys to change"))
    assert rows
    assert {key: default for key, default, _ in rows}.items() <= defaults().items()


@of_each_page
def test_keys_and_variables_that_are_mentioned_exist(page: Path) -> None:
    text = page.read_text()
    keys = re.findall(rf"`((?:{'|'.join(SECTIONS)})\.[a-z0-9_]+)(?:`| = )", text)
    variables = re.findall(r"PENSTOCK_([A-Z]+)__([A-Z0-9_]+)", text)
    ours = {"SECTION", *(name.upper() for name in NAMED)}
    keys += [f"{name}.{key}".lower() for name, key in variables if name not in ours]
    inner = {
        f"{name}.{key}__{field}"
        for name, kind in SECTIONS.items()
        for key, table_of in nested(kind).items()
        for field in table_of.__struct_fields__
    }
    assert set(keys) <= defaults().keys() | inner


def test_secrets_are_named_as_such() -> None:
    text = section(DOCS / "configuration.md", "Secrets")
    secrets = {
        f"{name}.{key}"
        for name, kind in SECTIONS.items()
        for key, mark in marks(kind).items()
        if mark == "secret"
    }
    assert secrets <= set(_INLINE_CODE.findall(text))


async def test_every_metric_is_documented_with_its_type() -> None:
    rows = described(section(DOCS / "monitoring.md", "Metrics"))
    telemetry = Telemetry()
    telemetry.in_region("eu", {})
    metrics = exposed(generate_latest(telemetry.registry).decode())
    async with (
        Page(config.Http(port=0), MembersSource((), None)).open() as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/metrics") as response,
    ):
        metrics |= exposed(await response.text())
    assert {name: kind for name, kind, _ in rows} == metrics


def test_every_metric_of_a_shadow_is_documented_with_its_type() -> None:
    telemetry = Telemetry()
    before = exposed(generate_latest(telemetry.registry).decode())
    telemetry.of_shadow()
    metrics = exposed(generate_latest(telemetry.registry).decode())
    rows = described(section(DOCS / "models.md", "A shadow"))
    assert {name: kind for name, kind, _ in rows} == {
        name: kind for name, kind in metrics.items() if name not in before
    }


def test_every_metric_of_traces_is_documented_with_its_type() -> None:
    telemetry = Telemetry()
    before = exposed(generate_latest(telemetry.registry).decode())
    telemetry.of_traces(MemorySpans())
    metrics = exposed(generate_latest(telemetry.registry).decode())
    rows = described(section(DOCS / "traces.md", "What it costs"))
    assert {name: kind for name, kind, _ in rows} == {
        name: kind for name, kind in metrics.items() if name not in before
    }


def test_every_part_of_the_way_is_explained() -> None:
    explained = _INLINE_CODE.findall(section(DOCS / "monitoring.md", "Metrics"))
    assert set(TimeSpent._fields) <= set(explained)


def test_every_error_code_is_documented() -> None:
    rows = table(section(DOCS / "messages.md", "Error codes"))
    assert [code for code, *_ in rows] == list(get_args(ErrorCode))


@of_each_page
def test_commands_and_options_that_are_mentioned_exist(page: Path) -> None:
    for words in words_of_commands(page):
        command: click.Command = cli
        for word in words:
            if word.startswith("-"):
                assert word.partition("=")[0] in options(command), f"{command.name} of {words}"
            elif isinstance(command, click.Group):
                assert word in docs_commands.below(command), f"{word} of {words}"
                command = docs_commands.below(command)[word]


@of_each_page
def test_options_that_are_mentioned_alone_are_some_command_s(page: Path) -> None:
    mentioned = re.findall(r"`(--[a-z0-9-]+)", _FENCE.sub("", page.read_text()))
    assert set(mentioned) <= set().union(
        *(options(each) for _, each in docs_commands.commands(cli))
    )


def test_the_reference_of_the_commands_is_what_the_commands_say() -> None:
    assert docs_commands.PAGE.read_text() == docs_commands.page(), "python -m scripts.docs_commands"


def test_an_operator_is_told_what_each_command_is_for() -> None:
    text = section(DOCS / "operations.md", "Commands")
    for name in docs_commands.below(cli):
        assert f"`penstock {name}" in text


@of_each_page
def test_prose_lines_fit_into_a_window(page: Path) -> None:
    """Except tables, code, and a single word (a link, code between ticks) that is longer."""
    long = [
        line
        for line in _FENCE.sub("", page.read_text()).splitlines()
        if len(line) > LINE and not line.startswith(("|", "    "))
        if " " in _INLINE_CODE.sub("code", line).strip().removeprefix("- ")
    ]
    assert not long, f"wrap these lines of {page.name} at {LINE} characters: {long}"


def test_the_way_of_a_record_names_each_of_its_files_once() -> None:
    text = section(DOCS / "way-of-a-record.md", "The files that it passes")
    files = re.findall(r"\]\(([^)]+)\)", text)
    assert files
    assert len(set(files)) == len(files)
    assert text.lstrip().startswith(f"{len(files)} files, ")


def test_functions_that_the_way_of_a_record_names_are_in_the_code() -> None:
    """Written as `Class.function`."""
    code = "\n".join(path.read_text() for path in (ROOT / "consumers/penstock").rglob("*.py"))
    prose = _prose("way-of-a-record.md")
    for owner, method in re.findall(r"\b(_?[A-Z][A-Za-z]+)\.(_?[a-z][a-z_]+)\b", prose):
        assert re.search(rf"^class {owner}\b", code, re.MULTILINE), owner
        assert re.search(rf"\bdef {method}\b", code), f"{owner}.{method}"


def _prose(page: str) -> str:
    """Without the targets of links, which have dots, too."""
    return _LINK.sub("]", (DOCS / page).read_text())


@of_each_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(_FENCE.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor:
            titles = _HEADING.findall(target.read_text())
            assert anchor in {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}


@pytest.mark.parametrize(
    ("title", "read"),
    [("Input", decode), ("Output", decode_prediction), ("Dead letters", decode_dead_letter)],
)
def test_examples_of_messages_are_such_messages(title: str, read: Any) -> None:
    examples = [
        text
        for language, text in _FENCE.findall(section(DOCS / "messages.md", title))
        if language == "json"
    ]
    assert examples
    for example in examples:
        read(example.encode())


def test_the_example_of_an_arrow_block_is_such_a_head() -> None:
    matches = _FENCE.findall(section(DOCS / "messages.md", "Output"))
    (example,) = [text for language, text in matches if language == "jsonc"]
    decode_head(example.encode())


def test_examples_of_a_shadow_topic_are_such_records() -> None:
    examples = _FENCE.findall(section(DOCS / "models.md", "A shadow"))
    kinds = [decode_shadow(text.encode()) for language, text in examples if language == "json"]
    assert [type(kind) for kind in kinds] == [Disagreement, Summary]


def test_references_in_dead_letters_can_be_published() -> None:
    for _, example in _FENCE.findall(section(DOCS / "messages.md", "Dead letters")):
        if (reference := orjson.loads(example)["reference"]) is not None:
            assert decode(orjson.dumps(reference))


@pytest.mark.parametrize("form", ["json", "float32"])
def test_the_first_handler_answers_one_element_per_row(form: str) -> None:
    text = section(DOCS / "models.md", "Your own model in ten minutes")
    source, *_ = [text for language, text in _FENCE.findall(text) if language == "python"]
    names: dict[str, Any] = {}
    exec(source, names)
    matrix = np.array([[1, 3], [5, 7]], "<f4")
    body, headers = {
        "json": (orjson.dumps(matrix.tolist()), {"content-type": "application/json"}),
        "float32": (matrix.tobytes(), {"content-type": "application/octet-stream", "x-rows": "2"}),
    }[form]
    handler = names["MeanHandler"]()
    context = SimpleNamespace(
        system_properties={"model_dir": "."}, get_all_request_header=lambda _: headers
    )
    handler.initialize(context)
    [answer] = handler.handle([{"body": body}], context)
    assert orjson.loads(answer) == [{"mean": 2.0}, {"mean": 6.0}]
    assert handler.handle([{"body": b""}], context) == [b"[]"]


def test_what_a_rebalance_and_a_crash_cost_is_told_in_figures() -> None:
    text = (DOCS / "operations.md").read_text()
    rows = text[text.index("### What a rebalance and a crash cost") :].partition("\n\nA smaller")[0]
    assert f"its session of {config.Kafka().session_ms / 1000:.0f} s" in rows
    for figure in ("`delivery.drain_ms`", "8 to 9 s", "`--processes`", "`--spare`"):
        assert figure in rows
