"""CSV and TSV as databases, sheets, and libraries of other languages export them.

What no tool here can write is written in the form that its maker documents, and is named so.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

from tests.writers.support import INSTALLED, Bad, Cell, File, Refused, hold, named, run, tool
from tests.writers.test_csv import (
    BACKSLASH,
    HEAD,
    NUMBERS,
    TEXT_ROWS,
    TEXTS,
    by_command,
    table,
    texts,
)

UNQUOTED = {"header": "no", "quote": "none", "escape": "backslash"}


# Postgres


@contextmanager
def postgres() -> Iterator[Callable[[str], bytes]]:
    """A server without network, in a folder of its own. It does not start as root."""
    with tempfile.TemporaryDirectory() as folder:
        user: list[str | Path] = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if user:
            shutil.chown(folder, "postgres")
        # The commands are found where they are installed, which is no folder of root's.
        initdb, control = (Path(tool(name)).resolve() for name in ("initdb", "pg_ctl"))
        data = f"{folder}/data"
        made = ["-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
        run(*user, initdb, *made, cwd=Path("/"))
        server: list[str | Path] = [control, "-D", data, "-l", f"{folder}/log", "-w"]
        options = f"-F -c listen_addresses= -c unix_socket_directories={folder}"
        run(*user, *server, "-o", options, "start", cwd=Path("/"))
        try:
            yield lambda sql: run(
                *user, "psql", "-q", "-X", "-h", folder, "-U", "postgres", "-v", "ON_ERROR_STOP=1",
                stdin=sql.encode(), cwd=Path("/"),
            )  # fmt: skip
        finally:
            run(*user, *server, "-m", "immediate", "stop", cwd=Path("/"))


POSTGRES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "COPY": ("", UNQUOTED),
    "COPY with a header": ("(header)", {**UNQUOTED, "header": "yes"}),
    "COPY, separated by pipes": ("(delimiter '|')", UNQUOTED),
    "COPY, csv": ("(format csv, header)", TEXT_ROWS),
    "COPY, csv, force_quote": ("(format csv, header, force_quote *)", TEXT_ROWS),
    "COPY, csv, semicolons": ("(format csv, header, delimiter ';')", TEXT_ROWS),
    "COPY, csv, quote is '": (
        "(format csv, header, quote '''')",
        {**TEXT_ROWS, "quote": "'"},
    ),
}


@cache
def copied() -> dict[str, bytes]:
    """What each form of COPY writes, by one server."""
    with postgres() as ask:
        rows = ", ".join(
            f"({id}, convert_from('\\x{text.encode().hex()}', 'UTF8'), {value})"
            for id, text, value in table()
        )
        ask(
            "create table t (id int, text text, value double precision); "
            f"insert into t values {rows};"
        )
        return {
            said: ask(f"copy t to stdout {options};") for said, (options, _) in POSTGRES.items()
        }


def by_postgres(said: str) -> Callable[[Path], File]:
    key = "texts.csv" if "csv" in said else "texts.tsv"
    return lambda folder: texts(copied()[said], key)


# Sheets

FODS = """<?xml version="1.0" encoding="UTF-8"?>
<office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" office:version="1.3"
 office:mimetype="application/vnd.oasis.opendocument.spreadsheet">
<office:body><office:spreadsheet><table:table table:name="t">{}</table:table></office:spreadsheet>
</office:body></office:document>"""


def sheet_cell(value: object) -> str:
    if isinstance(value, str):
        lines = "".join(f"<text:p>{escape(line)}</text:p>" for line in value.split("\n"))
        lines = lines.replace("p> ", "p><text:s/>").replace(" <", "<text:s/><")
        return f'<table:table-cell office:value-type="string">{lines}</table:table-cell>'
    return f'<table:table-cell office:value-type="float" office:value="{value}"/>'


GERMAN = """<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Setup/L10N"><prop oor:name="ooSetupSystemLocale" oor:op="fuse">
<value>de-DE</value></prop></item></oor:items>"""


def by_libreoffice(key: str, tokens: str, right: Sequence[Any] | Refused) -> Any:
    """`tokens`: separator, quote, charset (76: UTF-8), first line, columns, language, quote all."""

    def write(folder: Path) -> File:
        rows = "".join(
            f"<table:table-row>{''.join(map(sheet_cell, row))}</table:table-row>"
            for row in [HEAD, *table()]
        )
        (folder / "x.fods").write_text(FODS.format(rows))
        user = folder / "profile" / "user"
        user.mkdir(parents=True)
        if tokens.startswith("59"):
            (user / "registrymodifications.xcu").write_text(GERMAN)
        run(
            "soffice", f"-env:UserInstallation=file://{folder}/profile", "--headless",
            "--convert-to", f"csv:Text - txt - csv (StarCalc):{tokens}", "x.fods", cwd=folder,
        )  # fmt: skip
        data = (folder / "x.csv").read_bytes()
        if isinstance(right, Refused):
            return File(key, data, {"json": right})
        return texts(data, key, right)

    return write


def quoted(value: object) -> str:
    return '"{}"'.format(str(value).replace('"', '""'))


def as_documented(head: str, line: str, end: str = "", charset: str = "utf-8") -> Any:
    """Quotes around everything. `line`: what is between two rows."""

    def write(folder: Path) -> File:
        rows = [",".join(map(quoted, row)) for row in [HEAD, *table()]]
        return texts((head + line.join(rows) + end).encode(charset), "texts.csv")

    return write


def as_excel(separator: str) -> Callable[[Path], File]:
    """Excel quotes what it must."""

    def write(folder: Path) -> File:
        lines = [
            separator.join(
                quoted(cell) if set(str(cell)) & {separator, '"', "\n"} else str(cell)
                for cell in row
            )
            for row in [HEAD, *table()]
        ]
        data = "\r\n".join([f"sep={separator}", *lines, ""])
        return texts(data.encode("utf-8-sig"), "texts.csv")

    return write


# R and Octave

R = """
given <- readLines(file("stdin", encoding = "UTF-8"), encoding = "UTF-8")
hex <- function(h) {
  at <- seq(1, nchar(h), 2)
  rawToChar(as.raw(strtoi(substring(h, at, at + 1), 16)))
}
text <- vapply(given, hex, "", USE.NAMES = FALSE); Encoding(text) <- "UTF-8"
n <- seq_along(text) - 1
d <- data.frame(id = as.integer(n), text = text, value = n + 0.5)
"""


# Its backslashes before quotes are escapes, its other backslashes are not doubled.
ESCAPED_BY_R = [
    Bad("never closed") if text.endswith("\\") else text.replace("\\\\", "\\") for text in TEXTS
]


def by_r(
    call: str,
    key: str = "texts.csv",
    right: Sequence[Any] = TEXTS,
    *,
    has_labels: bool = False,
) -> Callable[[Path], File]:
    def write(folder: Path) -> File:
        given = "\n".join(text.encode().hex() for text in TEXTS).encode() + b"\n"
        run("Rscript", "-e", R + call, stdin=given, cwd=folder)
        data = (folder / "x").read_bytes()
        if has_labels:
            return File(key, data, {"json": [[row[0] + 1, *row] for row in table()]})
        return texts(data, key, right)

    return write


def by_octave(call: str) -> Callable[[Path], File]:
    def write(folder: Path) -> File:
        rows = "; ".join(" ".join(map(repr, row)) for row in NUMBERS)
        run("octave-cli", "--no-init-file", "--eval", f"x = [{rows}]; {call}", cwd=folder)
        values = [[int(n) if n.is_integer() and n < 1e15 else n for n in row] for row in NUMBERS]
        return File("numbers.csv", (folder / "x").read_bytes(), {"json": values})

    return write


# Java

JAVA = """
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.dataformat.csv.*;
import com.opencsv.*;
import org.apache.commons.csv.*;

public class Write {
  static final String[] HEAD = {"id", "text", "value"};
  static Writer to(String name) throws IOException {
    return Files.newBufferedWriter(Path.of(name), StandardCharsets.UTF_8);
  }
  public static void main(String[] args) throws Exception {
    List<Map<String, Object>> rows = new ObjectMapper().readValue(System.in, List.class);
    Map<String, CSVFormat> formats = Map.of("DEFAULT", CSVFormat.DEFAULT, "EXCEL", CSVFormat.EXCEL,
        "MYSQL", CSVFormat.MYSQL, "RFC4180", CSVFormat.RFC4180, "TDF", CSVFormat.TDF,
        "POSTGRESQL_CSV", CSVFormat.POSTGRESQL_CSV, "POSTGRESQL_TEXT", CSVFormat.POSTGRESQL_TEXT);
    for (var format : formats.entrySet())
      try (Writer out = to(format.getKey());
          CSVPrinter printer = new CSVPrinter(out, format.getValue())) {
        printer.printRecord((Object[]) HEAD);
        for (var row : rows) printer.printRecord(row.values());
      }
    for (char escape : new char[] {'"', '\\\\'})
      for (boolean all : new boolean[] {true, false})
        try (CSVWriter out = new CSVWriter(
            to("opencsv" + (escape == '"' ? "" : " escape") + (all ? " all" : "")),
            ',', '"', escape, "\\n")) {
          out.writeNext(HEAD, all);
          for (var row : rows)
            out.writeNext(row.values().stream().map(String::valueOf).toArray(String[]::new), all);
        }
    CsvMapper mapper = new CsvMapper();
    CsvSchema schema = CsvSchema.builder().addNumberColumn("id").addColumn("text")
        .addNumberColumn("value").setUseHeader(true).build();
    mapper.writer(schema).writeValue(to("jackson"), rows);
    mapper.writer(schema.withEscapeChar('\\\\')).writeValue(to("jackson escape"), rows);
  }
}
"""


@cache
def of_java() -> dict[str, bytes]:
    """What each library writes, by one run of Java."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "Write.java").write_text(JAVA)
        rows = [dict(zip(HEAD, row, strict=True)) for row in table()]
        run("java", "-cp", f"{INSTALLED}/java/*", "Write.java", stdin=json.dumps(rows).encode(),
            cwd=folder)  # fmt: skip
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def by_java(name: str, key: str = "texts.csv", right: Sequence[Any] = TEXTS) -> Any:
    return lambda folder: texts(of_java()[name], key, right)


# Node

NODE = """
const {stringify} = require("csv-stringify/sync"), papa = require("papaparse");
const rows = JSON.parse(require("fs").readFileSync(0));
process.stdout.write(OPTIONS);
"""


def by_node(call: str, key: str = "texts.csv") -> Callable[[Path], File]:
    return by_command(key, "writers-node", "-e", NODE.replace("OPTIONS", call))


def by_csvkit(key: str, *options: str) -> Callable[[Path], File]:
    def write(folder: Path) -> File:
        given = "\r\n".join(",".join(map(quoted, row)) for row in [HEAD, *table()]) + "\r\n"
        call = (
            "import sys; from csvkit.utilities.csvformat import launch_new_instance as run; run()"
        )
        data = run("writers-python", "-c", call, *options, stdin=given.encode(), cwd=folder)
        return texts(data, key)

    return write


CELLS: list[Cell] = [
    *(
        Cell("Postgres", said, by_postgres(said), ["initdb", "pg_ctl", "psql"], rows)
        for said, (_, rows) in POSTGRES.items()
    ),
    *(
        Cell(library, said, by_node(call, key), ["writers-node"], rows, is_long=True)
        for library, said, call, key, rows in (
            ("csv-stringify (Node)", "texts", "stringify(rows, {header: true})", "texts.csv",
             TEXT_ROWS),
            ("csv-stringify (Node)", "quoted, with a byte order mark",
             "stringify(rows, {header: true, quoted: true, bom: true})", "texts.csv", TEXT_ROWS),
            ("csv-stringify (Node)", "escape is a backslash",
             "stringify(rows, {header: true, quoted: true, escape: '\\\\'})", "texts.csv",
             BACKSLASH),
            ("Papa Parse (Node)", "unparse", "papa.unparse(rows)", "texts.csv", TEXT_ROWS),
            ("Papa Parse (Node)", "quotes, tabs",
             "papa.unparse(rows, {quotes: true, delimiter: '\\t'})", "texts.tsv", TEXT_ROWS),
        )
    ),
    Cell("Excel", "sep=; as its page says", as_excel(";"), (), TEXT_ROWS),
    Cell("Excel", "sep=, as its page says", as_excel(","), (), TEXT_ROWS),
    Cell("Excel", "sep=tab as its page says", as_excel("\t"), (), TEXT_ROWS),
    Cell("PowerShell", "Export-Csv as its page says", as_documented("", "\r\n", "\r\n"), (),
         TEXT_ROWS),
    Cell("PowerShell", "5.1, with its line #TYPE, as its page says", rows={
         **TEXT_ROWS, "comment": "#"}, write=as_documented(
         "#TYPE System.Management.Automation.PSCustomObject\r\n", "\r\n", "\r\n", "utf-8-sig")),
    Cell("R", "write.csv, labels", by_r("write.csv(d, 'x')", has_labels=True), ["Rscript"],
         TEXT_ROWS, is_long=True),
    Cell("R", "write.csv", by_r("write.csv(d, 'x', row.names = FALSE)"), ["Rscript"], TEXT_ROWS,
         is_long=True),
    Cell("R", "write.csv2", by_r("write.csv2(d, 'x', row.names = FALSE)"), ["Rscript"],
         {**TEXT_ROWS, "decimal": ","}, is_long=True),
    Cell("R", "write.table, tabs", by_r(
         "write.table(d, 'x', sep = '\\t', row.names = FALSE)", "texts.tsv", ESCAPED_BY_R),
         ["Rscript"],
         BACKSLASH, is_long=True),
    Cell("R", "fwrite", by_r("data.table::fwrite(d, 'x')"), ["Rscript"], TEXT_ROWS, is_long=True),
    Cell("R", "fwrite, a byte order mark, all quoted", by_r(
         "data.table::fwrite(d, 'x', bom = TRUE, quote = TRUE)"), ["Rscript"], TEXT_ROWS,
         is_long=True),
    Cell("Octave", "csvwrite", by_octave("csvwrite('x', x, 'precision', '%.17g')"), ["octave-cli"],
         is_long=True),
    Cell("Octave", "dlmwrite, tabs", by_octave("dlmwrite('x', x, '\\t', 'precision', '%.17g')"),
         ["octave-cli"], is_long=True),
    Cell("csvkit", "csvformat", by_csvkit("texts.csv"), ["writers-python"], TEXT_ROWS,
         is_long=True),
    Cell("csvkit", "csvformat -T", by_csvkit("texts.tsv", "-T"), ["writers-python"], TEXT_ROWS,
         is_long=True),
    Cell("csvkit", "csvformat -D ; -U 1", by_csvkit("texts.csv", "-D", ";", "-U", "1"),
         ["writers-python"], TEXT_ROWS, is_long=True),
    *(
        Cell("LibreOffice", said, by_libreoffice(key, tokens, TEXTS), ["soffice"], rows,
             is_long=True)
        for said, key, tokens, rows in (
            ("commas", "texts.csv", "44,34,76", TEXT_ROWS),
            ("semicolons, decimal commas", "texts.csv", "59,34,76", {**TEXT_ROWS, "decimal": ","}),
            ("tabs", "texts.tsv", "9,34,76", TEXT_ROWS),
            ("all texts quoted", "texts.csv", "44,34,76,1,,0,true", TEXT_ROWS),
            ("single quotes", "texts.csv", "44,39,76", {**TEXT_ROWS, "quote": "'"}),
        )
    ),
    Cell("LibreOffice", "UTF-16", by_libreoffice("texts.csv", "44,34,65535", Refused("UTF-16")),
         ["soffice"], TEXT_ROWS, ("plain", "decoder", "gzip"), is_long=True),
    *(
        Cell(library, said, by_java(name, key, right), ["java"], rows, is_long=True)
        for library, said, name, key, rows, right in (
            ("commons-csv (Java)", "DEFAULT", "DEFAULT", "texts.csv", TEXT_ROWS, TEXTS),
            ("commons-csv (Java)", "EXCEL", "EXCEL", "texts.csv", TEXT_ROWS, TEXTS),
            ("commons-csv (Java)", "RFC4180", "RFC4180", "texts.csv", TEXT_ROWS, TEXTS),
            ("commons-csv (Java)", "TDF", "TDF", "texts.tsv", TEXT_ROWS,
             TEXTS),
            ("commons-csv (Java)", "MYSQL", "MYSQL", "texts.tsv", {**UNQUOTED, "header": "yes"},
             TEXTS),
            ("commons-csv (Java)", "POSTGRESQL_CSV", "POSTGRESQL_CSV", "texts.csv", TEXT_ROWS,
             TEXTS),
            ("commons-csv (Java)", "POSTGRESQL_TEXT", "POSTGRESQL_TEXT", "texts.tsv",
             {**UNQUOTED, "header": "yes"}, TEXTS),
            ("opencsv (Java)", "its default", "opencsv all", "texts.csv", TEXT_ROWS, TEXTS),
            ("opencsv (Java)", "quotes where needed", "opencsv", "texts.csv", TEXT_ROWS, TEXTS),
            ("opencsv (Java)", "escape is a backslash", "opencsv escape all", "texts.csv",
             BACKSLASH, TEXTS),
            ("Jackson (Java)", "its default", "jackson", "texts.csv", TEXT_ROWS, TEXTS),
            ("Jackson (Java)", "escape is a backslash", "jackson escape", "texts.csv", BACKSLASH,
             TEXTS),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("cell", named(CELLS))
def test_rows_are_what_was_written(cell: Cell, tmp_path: Path) -> None:
    hold(cell, tmp_path)
