"""CSV and TSV as other tools write them.

Texts are those that a writer must quote or escape. A cell that looks like a number is one to us, so
none of them does. What an option of a writer loses, such as the difference between an empty text
and none, is in what is right.
"""

import csv
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.writers.support import Bad, Cell, File, Right, float32, hold, module, named, run

NUMBERS = [[1.5, -2.0, 0.1], [1e300, 3.0, 1e-7], [0.0, 123456789.0, -0.5]]
NAMES = ["a", "b", "c"]
TEXTS = [
    "plain", "a,b", 'say "hi"', '"q"', "two\nlines", "ü €", " blanks ", "semi;colon", "pi|pe",
    "t\tab",
    "C:\\new\\table", "\\\\server\\share", "end\\", "\\N", "it's", "'x'", "#", "x,\"", '"', 'y"\nz',
]  # fmt: skip
MANY = 3_000


def numbers(data: bytes, key: str = "numbers.csv", *, times: int = 1) -> File:
    right: Right = [list(row) for row in NUMBERS] * times
    finite: list[list[float]] = [
        row if abs(row[0]) < 1e38 else [float("inf"), *row[1:]] for row in NUMBERS
    ]
    return File(
        key,
        data,
        {"json": right, "float32": float32(finite) * times, "arrow": float32(finite) * times},
    )


def texts(
    data: bytes, key: str = "texts.csv", right: Sequence[Any] = TEXTS, *, times: int = 1
) -> File:
    rows: Right = [
        value if isinstance(value, Bad) else [at % len(right), value, at + 0.5]
        for at, value in enumerate(list(right) * times)
    ]
    return File(key, data, {"json": rows})


def table(times: int = 1) -> list[list[Any]]:
    return [[at % len(TEXTS), text, at + 0.5] for at, text in enumerate(TEXTS * times)]


HEAD = ["id", "text", "value"]
TEXT_ROWS = {"header": "yes"}


def frame(name: str, rows: Sequence[Sequence[Any]], columns: Sequence[str]) -> Any:
    library = module(name)
    values = {column: [row[at] for row in rows] for at, column in enumerate(columns)}
    return library.DataFrame(values)


def by_pandas(key: str, times: int = 1, **options: Any) -> Callable[[Path], File]:
    def write(folder: Path) -> File:
        path = folder / key
        if key.startswith("numbers"):
            frame("pandas", NUMBERS * times, NAMES).to_csv(path, index=False, **options)
            return numbers(path.read_bytes(), key, times=times)
        frame("pandas", table(times), HEAD).to_csv(path, index=False, **options)
        return texts(path.read_bytes(), key, times=times)

    return write


def by_polars(key: str, times: int = 1, **options: Any) -> Callable[[Path], File]:
    def write(folder: Path) -> File:
        path = folder / key
        if key.startswith("numbers"):
            frame("polars", NUMBERS * times, NAMES).write_csv(path, **options)
            return numbers(path.read_bytes(), key, times=times)
        frame("polars", table(times), HEAD).write_csv(path, **options)
        return texts(path.read_bytes(), key, times=times)

    return write


def by_duckdb(key: str, options: str = "") -> Callable[[Path], File]:
    def write(folder: Path) -> File:
        path = folder / key
        base = module("duckdb").connect()
        base.execute("create table t (id int, text varchar, value double)")
        base.executemany("insert into t values (?, ?, ?)", table())
        base.execute(f"copy t to '{path}' (header {options})")
        return texts(path.read_bytes(), key)

    return write


def by_python(key: str, right: Sequence[Any] = TEXTS, **options: Any) -> Callable[[Path], File]:
    def write(folder: Path) -> File:
        path = folder / key
        with path.open("w", newline="") as file:
            csv.writer(file, **options).writerows([HEAD, *table()])
        return texts(path.read_bytes(), key, right)

    return write


def by_command(
    key: str, *command: str, right: Sequence[Any] = TEXTS, change: Callable[[bytes], bytes] = bytes
) -> Callable[[Path], File]:
    """A program that reads the rows as JSON from its standard input."""

    def write(folder: Path) -> File:
        rows = [dict(zip(HEAD, row, strict=True)) for row in table()]
        data = run(*command, stdin=json.dumps(rows).encode(), cwd=folder)
        return texts(change(data), key, right)

    return write


RUBY = """
require "csv"; require "json"
rows = JSON.parse(STDIN.read)
print CSV.generate(**{OPTIONS}) { |csv| csv << rows[0].keys; rows.each { |row| csv << row.values } }
"""
PHP = """
$rows = json_decode(file_get_contents("php://stdin"), true);
$out = fopen("php://output", "w");
fputcsv($out, array_keys($rows[0])OPTIONS);
foreach ($rows as $row) fputcsv($out, $rowOPTIONS);
"""
PERL = """
use JSON::PP; use Text::CSV; binmode STDOUT, ":utf8";
my $rows = decode_json(join "", <STDIN>);
my $csv = Text::CSV->new({ binary => 1, eol => "\\n", OPTIONS });
my @names = ("id", "text", "value");
$csv->print(*STDOUT, \\@names);
$csv->print(*STDOUT, [@$_{@names}]) for @$rows;
"""
GO = """
package main

import ("encoding/csv"; "encoding/json"; "fmt"; "os")

func main() {
    var rows []map[string]any
    if err := json.NewDecoder(os.Stdin).Decode(&rows); err != nil { panic(err) }
    out := csv.NewWriter(os.Stdout)
    out.Comma = rune(os.Args[1][0])
    out.UseCRLF = len(os.Args) > 2
    out.Write([]string{"id", "text", "value"})
    for _, row := range rows {
        out.Write([]string{fmt.Sprint(row["id"]), row["text"].(string), fmt.Sprint(row["value"])})
    }
    out.Flush()
}
"""


def by_go(key: str, *options: str, right: Sequence[Any] = TEXTS) -> Callable[[Path], File]:
    def write(folder: Path) -> File:
        (folder / "main.go").write_text(GO)
        return by_command(key, "go", "run", "main.go", *options, right=right)(folder)

    return write


def by_sqlite(key: str, mode: str) -> Callable[[Path], File]:
    def write(folder: Path) -> File:
        quoted = [text.replace("'", "''") for text in TEXTS]
        lines = ["create table t (id int, text text, value real);"]
        lines += [
            f"insert into t values ({at}, '{text}', {at}.5);" for at, text in enumerate(quoted)
        ]
        lines += [".headers on", f".mode {mode}", "select * from t;"]
        (folder / "in.sql").write_text("\n".join(lines))
        data = run("sqlite3", "-batch", "-init", "in.sql", ":memory:", ".quit", cwd=folder)
        return texts(data, key)

    return write


def by_script(
    key: str, command: Sequence[str], script: str, options: str, right: Sequence[Any] = TEXTS
) -> Callable[[Path], File]:
    return by_command(key, *command, script.replace("OPTIONS", options), right=right)


def by_perl(options: str) -> Callable[[Path], File]:
    def write(folder: Path) -> File:
        try:
            run("perl", "-MText::CSV", "-e", "1")
        except AssertionError:
            pytest.skip("Text::CSV is not installed (scripts/writers)")
        return by_script("texts.csv", ["perl", "-e"], PERL, options)(folder)

    return write


@contextmanager
def mariadb() -> Iterator[Callable[[str], bytes]]:
    """A server without network, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        run("mariadb-install-db", f"--datadir={folder}/data", "--skip-test-db", "--user=root")
        socket = f"--socket={folder}/s"
        server = subprocess.Popen(
            ["mariadbd", f"--datadir={folder}/data", socket, "--skip-networking", "--user=root",
             "--secure-file-priv=", "--character-set-server=utf8mb4"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            run("mariadb-admin", socket, "--wait=30", "--connect-timeout=30", "ping")
            yield lambda sql: run(
                "mariadb", socket, "--default-character-set=utf8mb4", stdin=sql.encode()
            )
        finally:
            server.terminate()
            server.wait()


def sql_texts() -> str:
    """Each text as a literal of its bytes."""
    return ", ".join(
        f"({id}, convert(0x{text.encode().hex()} using utf8mb4), {value})"
        for id, text, value in table()
    )


def by_mariadb(key: str, fields: str) -> Callable[[Path], File]:
    def write(folder: Path) -> File:
        with tempfile.TemporaryDirectory() as out, mariadb() as ask:
            Path(out).chmod(0o777)
            ask(
                "create database d; create table d.t (id int, text text, value double) "
                f"character set utf8mb4; insert into d.t values {sql_texts()}; select * from d.t "
                f"order by id into outfile '{out}/x' character set utf8mb4 {fields};"
            )
            return texts((Path(out) / "x").read_bytes(), key)

    return write


SPARK: dict[str, tuple[Mapping[str, str], Mapping[str, Any], Mapping[str, Any]]] = {
    # What Spark does not quote it does not escape.
    "its default": (
        {},
        {**TEXT_ROWS, "escape": "backslash"},
        {"\\N": None, "\\\\server\\share": Bad("cell 1 has a backslash")},
    ),
    "quoteAll": ({"quoteAll": "true"}, TEXT_ROWS, {}),
    "escape is a quote": ({"escape": '"'}, TEXT_ROWS, {}),
}
SPARK_SCRIPT = """
import json, sys
from pyspark.sql import SparkSession
given = json.load(sys.stdin)
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.createDataFrame(given["rows"], "id int, text string, value double").coalesce(1)
for at, options in enumerate(given["options"]):
    rows.write.options(header="true", **options).csv(str(at))
"""


@cache
def of_spark() -> dict[str, bytes]:
    """What each option writes, by one Spark."""
    given = {"rows": table(), "options": [options for options, _, _ in SPARK.values()]}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run("writers-python", "-c", SPARK_SCRIPT, stdin=json.dumps(given).encode(), cwd=folder)
        return {
            said: next((folder / str(at)).glob("*.csv")).read_bytes()
            for at, said in enumerate(SPARK)
        }


def by_spark(said: str) -> Callable[[Path], File]:
    wrong = SPARK[said][2]
    # Spark takes the blanks around a text away.
    right = [wrong.get(text, text.strip()) for text in TEXTS]
    return lambda folder: texts(of_spark()[said], "spark.csv", right)


BACKSLASH = {**TEXT_ROWS, "escape": "backslash"}
CELLS: list[Cell] = [
    *(
        Cell("pandas", said, by_pandas(key, times, **options), ["module:pandas"], rows)
        for said, key, times, options, rows in (
            ("to_csv, numbers", "numbers.csv", 1, {}, {}),
            ("3,000 rows", "numbers.csv", MANY // 3, {}, {}),
            ("sep=;", "numbers.csv", 1, {"sep": ";"}, {}),
            (
                "decimal=, and sep=;",
                "numbers.csv",
                1,
                {"sep": ";", "decimal": ","},
                {"decimal": ","},
            ),
            ("decimal=,", "numbers.csv", 1, {"decimal": ","}, {"decimal": ","}),
            (
                "utf-8-sig, CRLF",
                "numbers.csv",
                1,
                {"encoding": "utf-8-sig", "lineterminator": "\r\n"},
                {},
            ),
            ("QUOTE_ALL", "numbers.csv", 1, {"quoting": 1}, {}),
            ("texts", "texts.csv", 1, {}, TEXT_ROWS),
            ("3,000 rows of texts", "texts.csv", MANY // len(TEXTS), {}, TEXT_ROWS),
            ("texts, QUOTE_ALL", "texts.csv", 1, {"quoting": 1}, TEXT_ROWS),
            ("texts, sep=tab", "texts.tsv", 1, {"sep": "\t"}, TEXT_ROWS),
            ("texts, quotechar='", "texts.csv", 1, {"quotechar": "'"}, {**TEXT_ROWS, "quote": "'"}),
            (
                "texts, quotechar=', found",
                "texts.csv",
                1,
                {"quotechar": "'", "quoting": 1},
                TEXT_ROWS,
            ),
        )
    ),
    *(
        Cell("polars", said, by_polars(key, times, **options), ["module:polars"], rows)
        for said, key, times, options, rows in (
            ("write_csv, numbers", "numbers.csv", 1, {}, {}),
            ("texts", "texts.csv", 1, {}, TEXT_ROWS),
            ("texts, always quoted", "texts.csv", 1, {"quote_style": "always"}, TEXT_ROWS),
            ("texts, separated by pipes", "texts.csv", 1, {"separator": "|"}, TEXT_ROWS),
        )
    ),
    *(
        Cell("DuckDB", said, by_duckdb(key, options), ["module:duckdb"], rows)
        for said, key, options, rows in (
            ("COPY", "texts.csv", "", TEXT_ROWS),
            ("force_quote", "texts.csv", ", force_quote *", TEXT_ROWS),
            ("delimiter tab", "texts.tsv", ", delimiter '\t'", TEXT_ROWS),
            ("escape backslash", "texts.csv", ", escape '\\', force_quote *", BACKSLASH),
        )
    ),
    *(
        Cell("Python's csv", said, by_python("texts.csv", **options), (), rows)
        for said, options, rows in (
            ("texts", {}, TEXT_ROWS),
            ("unix", {"dialect": "unix"}, TEXT_ROWS),
            (
                "escapechar, all quoted",
                {"quoting": 1, "doublequote": False, "escapechar": "\\"},
                BACKSLASH,
            ),
            (
                "escapechar, QUOTE_NONE",
                {"quoting": 3, "quotechar": None, "escapechar": "\\"},
                {**BACKSLASH, "quote": "none"},
            ),
        )
    ),
    Cell(
        "Ruby's CSV", "texts", by_script("texts.csv", ["ruby", "-e"], RUBY, ""), ["ruby"], TEXT_ROWS
    ),
    Cell(
        "Ruby's CSV",
        "force_quotes, CRLF",
        by_script("texts.csv", ["ruby", "-e"], RUBY, 'force_quotes: true, row_sep: "\\r\\n"'),
        ["ruby"],
        TEXT_ROWS,
    ),
    Cell(
        "Ruby's CSV",
        "col_sep ;",
        by_script("texts.csv", ["ruby", "-e"], RUBY, 'col_sep: ";"'),
        ["ruby"],
        TEXT_ROWS,
    ),
    Cell(
        "PHP's fputcsv",
        "without an escape",
        by_script("texts.csv", ["php", "-r"], PHP, ', ",", "\\"", ""'),
        ["php"],
        TEXT_ROWS,
    ),
    Cell(
        "Perl's Text::CSV",
        "texts",
        by_perl(""),
        ["perl"],
        TEXT_ROWS,
    ),
    Cell(
        "Perl's Text::CSV",
        "escape_char backslash",
        by_perl('always_quote => 1, escape_char => "\\\\"'),
        ["perl"],
        BACKSLASH,
    ),
    Cell(
        "Miller",
        "--ojson to CSV",
        by_command("texts.csv", "mlr", "--ijson", "--ocsv", "cat"),
        ["mlr"],
        TEXT_ROWS,
    ),
    Cell(
        "Miller",
        "quote-all",
        by_command("texts.csv", "mlr", "--ijson", "--ocsv", "--quote-all", "cat"),
        ["mlr"],
        TEXT_ROWS,
    ),
    Cell("Go's encoding/csv", "texts", by_go("texts.csv", ","), ["go"], TEXT_ROWS, is_long=True),
    Cell(
        "Go's encoding/csv",
        "tab, CRLF",
        by_go("texts.tsv", "\t", "crlf", right=[t.replace("\n", "\r\n") for t in TEXTS]),
        ["go"],
        TEXT_ROWS,
        is_long=True,
    ),
    Cell("SQLite", ".mode csv", by_sqlite("texts.csv", "csv"), ["sqlite3"], TEXT_ROWS),
    Cell(
        "MariaDB",
        "OUTFILE",
        by_mariadb("texts.tsv", ""),
        ["mariadbd"],
        {"header": "no", "quote": "none", "escape": "backslash"},
        is_long=True,
    ),
    Cell(
        "MariaDB",
        "OUTFILE, enclosed",
        by_mariadb("texts.csv", "fields terminated by ',' enclosed by '\"'"),
        ["mariadbd"],
        {"header": "no", "escape": "backslash"},
        is_long=True,
    ),
    Cell(
        "MariaDB",
        "OUTFILE, optionally enclosed",
        by_mariadb("texts.csv", "fields terminated by ',' optionally enclosed by '\"'"),
        ["mariadbd"],
        {"header": "no"},
        is_long=True,
    ),
    *(
        Cell("Spark", said, by_spark(said), ["writers-python"], rows, is_long=True)
        for said, (_, rows, _) in SPARK.items()
    ),
]


@pytest.mark.parametrize("cell", named(CELLS))
def test_rows_are_what_was_written(cell: Cell, tmp_path: Path) -> None:
    hold(cell, tmp_path)
