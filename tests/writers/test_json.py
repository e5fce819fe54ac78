"""JSON as other tools lay it out and spell it."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.writers.support import Bad, Cell, File, Refused, float32, hold, module, named, run

BIG = {"id": 18014398509481985, "name": "ü\n\u2028", "list": [], "none": True}
VALUES: list[object] = [
    {"id": 1, "name": 'a }{ "b"', "list": [1.5, [2], {}], "none": None},
    BIG,
    {"id": -3, "name": "", "list": ["]"], "none": False},
]
# jq and JavaScript hold numbers as float64.
ROUNDED = [VALUES[0], {**BIG, "id": 18014398509481984}, VALUES[2]]
TEXT = json.dumps(VALUES).encode()
LINES = "\n".join(map(json.dumps, VALUES)).encode()


def values(
    *command: str, key: str = "x.json", stdin: bytes = TEXT, right: Sequence[object] = VALUES
) -> Callable[[Path], File]:
    """What a command makes of the values."""
    return lambda _: File(key, run(*command, stdin=stdin), {"json": right})


def jq(*options: str, key: str = "x.json", stdin: bytes = TEXT) -> Callable[[Path], File]:
    return values("jq", *options, key=key, stdin=stdin, right=ROUNDED)


def text(data: bytes, right: Sequence[object] | Refused, key: str = "x.json") -> Any:
    """A form that is written by the page of a tool that cannot be had."""
    return lambda _: File(key, data, {"json": right})


def orient(name: str, **options: Any) -> Any:
    frame = {"a": [1.5, 2.5], "b": [3.0, 4.0]}
    right: dict[str, list[object]] = {
        "records": [{"a": 1.5, "b": 3.0}, {"a": 2.5, "b": 4.0}],
        "values": [[1.5, 3.0], [2.5, 4.0]],
        "split": [[1.5, 3.0], [2.5, 4.0]],
        "table": [{"index": 0, "a": 1.5, "b": 3.0}, {"index": 1, "a": 2.5, "b": 4.0}],
        "index": [{"0": {"a": 1.5, "b": 3.0}, "1": {"a": 2.5, "b": 4.0}}],
        "columns": [{"a": {"0": 1.5, "1": 2.5}, "b": {"0": 3.0, "1": 4.0}}],
    }

    def write(folder: Path) -> File:
        pd = module("pandas")
        path = folder / "x.json"
        pd.DataFrame(frame).to_json(path, orient=name, **options)
        numbers = {"json": right[name]}
        if name in ("records", "values", "split"):
            numbers["float32"] = float32([[1.5, 3.0], [2.5, 4.0]])
        return File("x.json", path.read_bytes(), numbers)  # type: ignore[arg-type]

    return write


def table(writer: str, call: Callable[[Any, Path], object], key: str) -> Any:
    def write(folder: Path) -> File:
        library = module(writer)
        call(library, folder / key)
        right = [{"a": 1.5, "b": "x"}, {"a": -2.25, "b": None}]
        return File(key, (folder / key).read_bytes(), {"json": right})

    return write


def _duckdb(options: str) -> Callable[[Any, Path], object]:
    rows = "SELECT * FROM (VALUES (1.5::DOUBLE, 'x'), (-2.25, NULL)) t(a, b)"
    return lambda duckdb, path: duckdb.sql(f"COPY ({rows}) TO '{path}' (FORMAT json{options})")


def _polars(method: str) -> Callable[[Any, Path], object]:
    return lambda polars, path: getattr(
        polars.DataFrame({"a": [1.5, -2.25], "b": ["x", None]}), method
    )(path)


NODE = "console.log(JSON.stringify({}))"
ODD = "[NaN, -0, 1e400, -1e400, 2**53 + 2, 0.1, 1e21, undefined]"
ODD_RIGHT = [None, 0, None, None, 9007199254740994, 0.1, 1e21, None]
READ = "require('fs').readFileSync(0, 'utf8')"
PARSED = f"JSON.parse({READ})"
NODE_PRETTY = f"console.log(JSON.stringify({PARSED}[0], null, 2))"
RUBY = "require 'json'; JSON.parse(STDIN.read).each { |x| puts JSON.%s(x) }"
PHP = "$v = json_decode(stream_get_contents(STDIN)); "
PHP_PRETTY = "foreach ($v as $x) echo json_encode($x, JSON_PRETTY_PRINT);"
GO = """package main
import ("bytes"; "encoding/json"; "io"; "os")
func main() {
	in, _ := io.ReadAll(os.Stdin)
	var vs []json.RawMessage
	json.Unmarshal(in, &vs)
	e := json.NewEncoder(os.Stdout)
	if os.Args[1] == "indent" { e.SetIndent("", "\\t") }
	if os.Args[1] == "array" {
		var b bytes.Buffer
		json.Indent(&b, in, "", "  ")
		os.Stdout.Write(b.Bytes())
		return
	}
	for _, v := range vs { e.Encode(v) }
}
"""


def go(option: str) -> Any:
    def write(folder: Path) -> File:
        (folder / "main.go").write_text(GO)
        run("go", "build", "-o", folder / "write", folder / "main.go", cwd=folder)
        return File("x.json", run(folder / "write", option, stdin=TEXT), {"json": VALUES})

    return write


FEATURES: list[object] = [
    {
        "type": "Feature",
        "properties": {"id": number},
        "geometry": {"type": "Point", "coordinates": place},
    }
    for number, place in ((1, [1.5, 2.5]), (2, [3.5, 4.5]))
]


def ogr2ogr(form: str, key: str) -> Any:
    def write(folder: Path) -> File:
        (folder / "in.csv").write_text("id,x,y\n1,1.5,2.5\n2,3.5,4.5\n")
        options = ["X_POSSIBLE_NAMES=x", "Y_POSSIBLE_NAMES=y", "KEEP_GEOM_COLUMNS=NO"]
        given = [word for option in (*options, "AUTODETECT_TYPE=YES") for word in ("-oo", option)]
        run("ogr2ogr", "-f", form, key, "in.csv", *given, cwd=folder)
        return File(key, (folder / key).read_bytes(), {"json": FEATURES})

    return write


COLLECTION = {"type": "FeatureCollection", "name": "n", "features": FEATURES}
EVENTS = [{"id": "1", "timestamp": 1, "message": "}{"}, {"id": "2", "timestamp": 2, "message": "m"}]
MESSAGES = [{"messageType": "DATA_MESSAGE", "logEvents": [event]} for event in EVENTS]
LOGS = "".join(map(json.dumps, MESSAGES)).encode()
MONGO = [{"_id": {"$oid": "5f50c31e8a7d4b1c9c0f1a2b"}, "a": {"$numberLong": "5"}}, {"_id": 2}]
FOUND: list[object] = [{"_source": {"a": 1}}, {"_source": {}}]
HITS = {"took": 1, "hits": {"total": {"value": 2}, "hits": FOUND}}
BULK: list[object] = [{"index": {"_index": "t", "_id": "1"}}, {"a": 1}, {"delete": {"_id": "2"}}]

CELLS: list[Cell] = [
    Cell("jq", ".", jq(".[]"), ["jq"]),
    Cell("jq", "-c", jq("-c", ".[]"), ["jq"]),
    Cell("jq", "-c as .ndjson", jq("-c", ".[]", key="x.ndjson"), ["jq"]),
    Cell("jq", ". as .jsonl", jq(".[]", key="x.jsonl"), ["jq"]),
    Cell("jq", "--tab, an array", jq("--tab", "."), ["jq"]),
    Cell("jq", "--seq", jq("--seq", ".[]", stdin=b"\x1e" + TEXT + b"\n"), ["jq"]),
    Cell("jq", "-j (values joined)", jq("-cj", ".[]"), ["jq"]),
    Cell("jq", "one object", values("jq", ".[0]", right=VALUES[:1]), ["jq"]),
    Cell(
        "jq",
        "arrays",
        values("jq", ".[]", stdin=b"[[1, 2], [3, 4]]", right=[[1, 2], [3, 4]]),
        ["jq"],
    ),
    Cell(
        "jq", "scalars", values("jq", ".[]", stdin=b'[1, "x", null]', right=[1, "x", None]), ["jq"]
    ),
    *(
        Cell("pandas", f"to_json, orient={name}", orient(name), ["module:pandas"], rows)
        for name, rows in {
            "records": {},
            "values": {},
            "index": {},
            "columns": {},
            "split": {"path": "/data"},
            "table": {"path": "/data"},
        }.items()
    ),
    Cell("pandas", "to_json, lines", orient("records", lines=True), ["module:pandas"]),
    Cell("pandas", "to_json, indent=2", orient("records", indent=2), ["module:pandas"]),
    Cell("duckdb", "COPY, JSON", table("duckdb", _duckdb(""), "x.json"), ["module:duckdb"]),
    Cell(
        "duckdb",
        "COPY, JSON, ARRAY",
        table("duckdb", _duckdb(", array true"), "x.json"),
        ["module:duckdb"],
    ),
    Cell(
        "polars", "write_json", table("polars", _polars("write_json"), "x.json"), ["module:polars"]
    ),
    Cell(
        "polars",
        "write_ndjson",
        table("polars", _polars("write_ndjson"), "x.ndjson"),
        ["module:polars"],
    ),
    Cell(
        "node", "JSON.stringify", values("node", "-e", NODE.format(PARSED), right=ROUNDED), ["node"]
    ),
    Cell(
        "node",
        "JSON.stringify, indent",
        values("node", "-e", NODE_PRETTY, right=VALUES[:1]),
        ["node"],
    ),
    Cell(
        "node",
        "JSON.stringify, odd numbers",
        values("node", "-e", NODE.format(f"[{ODD}]"), right=[ODD_RIGHT]),
        ["node"],
    ),
    Cell("Ruby", "JSON.generate, lines", values("ruby", "-e", RUBY % "generate"), ["ruby"]),
    Cell("Ruby", "JSON.pretty_generate", values("ruby", "-e", RUBY % "pretty_generate"), ["ruby"]),
    Cell("PHP", "json_encode, pretty", values("php", "-r", PHP + PHP_PRETTY), ["php"]),
    Cell("PHP", "json_encode", values("php", "-r", PHP + "echo json_encode($v);"), ["php"]),
    Cell("Go", "Encoder", go("lines"), ["go"]),
    Cell("Go", "Encoder, SetIndent", go("indent"), ["go"], is_long=True),
    Cell("Go", "json.Indent, an array", go("array"), ["go"]),
    Cell(
        "Python",
        "json.dumps, joined (Firehose)",
        text(b"".join(map(str.encode, map(json.dumps, VALUES))), VALUES),
    ),
    Cell(
        "Python", "json.dumps, indent", text(json.dumps(VALUES[0], indent=4).encode(), VALUES[:1])
    ),
    Cell(
        "Python",
        "json.dumps, NaN",
        text(b"[1, NaN]\n[2, 3]\n", [Bad("not JSON"), [2, 3]], "x.ndjson"),
    ),
    Cell(
        "GeoJSON", "a collection", text(json.dumps(COLLECTION).encode(), [COLLECTION], "x.geojson")
    ),
    Cell(
        "GeoJSON",
        "a collection, its features",
        text(json.dumps(COLLECTION, indent=1).encode(), FEATURES, "x.geojson"),
        rows={"path": "/features"},
    ),
    Cell(
        "ogr2ogr",
        "GeoJSON",
        ogr2ogr("GeoJSON", "x.geojson"),
        ["ogr2ogr"],
        {"path": "/features"},
        is_long=True,
    ),
    Cell("ogr2ogr", "GeoJSONSeq", ogr2ogr("GeoJSONSeq", "x.geojsonl"), ["ogr2ogr"], is_long=True),
    Cell(
        "mongoexport", "as its page says", text("\n".join(map(json.dumps, MONGO)).encode(), MONGO)
    ),
    Cell(
        "mongoexport",
        "--jsonArray",
        text(b"[%b]\n" % ",\n".join(map(json.dumps, MONGO)).encode(), MONGO),
    ),
    Cell(
        "mongoexport",
        "--pretty",
        text("\n".join(json.dumps(one, indent="\t") for one in MONGO).encode(), MONGO),
    ),
    Cell("BigQuery", "an export, as its page says", text(LINES + b"\n", VALUES)),
    Cell(
        "Elasticsearch",
        "a bulk",
        text("\n".join(map(json.dumps, BULK)).encode() + b"\n", BULK, "x.ndjson"),
    ),
    Cell(
        "Elasticsearch",
        "hits of a search",
        text(json.dumps(HITS).encode(), FOUND),
        rows={"path": "/hits/hits"},
    ),
    Cell("CloudWatch", "logs by Firehose", text(LOGS, EVENTS), rows={"path": "/logEvents"}),
    Cell("CloudWatch", "logs by Firehose, whole messages", text(LOGS, MESSAGES)),
    Cell(
        "an error page",
        "HTML named .json",
        text(b"<!DOCTYPE html><html></html>", Refused("HTML page")),
        ways=["plain", "decoder", "gzip"],
    ),
]


@pytest.mark.parametrize("cell", named(CELLS))
def test_rows_are_what_was_written(cell: Cell, tmp_path: Path) -> None:
    hold(cell, tmp_path)
