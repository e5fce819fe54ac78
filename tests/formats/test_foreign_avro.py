"""Avro as Java's own library writes it, fetched once by Maven; skipped where there is none."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.formats.runs import RowOptions
from realstack import layout
from tests.formats.support import decode, elements, matrix

VERSION = "1.12.0"
ROWS = 2_000
FETCH_S = 90
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>penstock</groupId><artifactId>avro</artifactId><version>1</version><dependencies>{}
</dependencies></project>"""
DEPENDENCY = """<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
</dependency>"""
PACKAGES = (
    ("org.apache.avro", "avro", VERSION),
    ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
    ("com.github.luben", "zstd-jni", "1.5.6-3"),
    ("org.tukaani", "xz", "1.9"),
)
WRITER = """
import java.io.File;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.file.CodecFactory;
import org.apache.avro.file.DataFileWriter;
import org.apache.avro.generic.*;

public class Write {
  public static void main(String[] args) throws Exception {
    Schema schema = new Schema.Parser().parse(new File(args[0], "schema.json"));
    for (String codec : List.of("null", "deflate", "snappy", "bzip2", "zstandard", "xz")) {
      GenericDatumWriter<GenericRecord> datum = new GenericDatumWriter<>(schema);
      try (DataFileWriter<GenericRecord> file = new DataFileWriter<>(datum)) {
        file.setCodec(CodecFactory.fromString(codec));
        file.setMeta("writer", "java");
        file.create(schema, new File(args[0], codec + ".avro"));
        for (int n = 0; n < Integer.parseInt(args[1]); n++) {
          GenericRecord row = new GenericData.Record(schema);
          row.put("id", (long) n);
          row.put("value", n / 8.0);
          row.put("small", n / 4.0f);
          row.put("name", n % 3 == 0 ? null : "name " + n);
          row.put("at", 1795262400000L + n);
          Schema kind = schema.getField("kind").schema();
          row.put("kind", new GenericData.EnumSymbol(kind, n % 2 == 0 ? "A" : "B"));
          row.put("sizes", List.of(n, -n));
          row.put("tags", Map.of("k", "v" + n));
          row.put("raw", ByteBuffer.wrap(new byte[] {0, (byte) n}));
          file.append(row);
        }
      }
    }
  }
}
"""
SCHEMA = {"type": "record", "name": "Row", "namespace": "org.example", "fields": [
    {"name": "id", "type": "long"},
    {"name": "value", "type": "double"},
    {"name": "small", "type": "float"},
    {"name": "name", "type": ["null", "string"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {"name": "sizes", "type": {"type": "array", "items": "int"}},
    {"name": "tags", "type": {"type": "map", "values": "string"}},
    {"name": "raw", "type": "bytes"},
]}  # fmt: skip
CODECS = ("null", "deflate", "snappy", "bzip2", "zstandard", "xz")


def jars() -> Path:
    """Where the library is, fetched the first time."""
    folder = layout.cache() / f"avro-{VERSION}"
    layout.build_once(folder, fetch)
    return folder / "libs"


def fetch(folder: Path) -> None:
    dependencies = "".join(DEPENDENCY.format(*package) for package in PACKAGES)
    (folder / "pom.xml").write_text(POM.format(dependencies))
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=FETCH_S)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (shutil.which("mvn") and shutil.which("javac")):
        pytest.skip("Maven and a Java compiler are not on this machine")
    try:
        classes = f"{jars()}/*"
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"Maven could not fetch Avro's library: {error}")
    folder = tmp_path_factory.mktemp("avro")
    (folder / "Write.java").write_text(WRITER)
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    command = ["java", "-cp", classes, str(folder / "Write.java"), str(folder), str(ROWS)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("codec", CODECS)
def test_rows_are_those_that_java_wrote(codec: str, files: Path) -> None:
    data = (files / f"{codec}.avro").read_bytes()
    numbers = RowOptions(columns=["id", "value", "small"])
    assert matrix(decode(data, "a.avro", numbers)) == [[n, n / 8, n / 4] for n in range(ROWS)]
    rows = elements(decode(data, "a.avro", RowOptions(form="json"), cuts=range(0, len(data), 999)))
    assert len(rows) == ROWS
    assert rows[7] == {
        "id": 7, "value": 0.875, "small": 1.75, "name": "name 7",
        "at": "2026-11-21T12:00:00.007000Z", "kind": "B", "sizes": [7, -7],
        "tags": {"k": "v7"}, "raw": "AAc=",
    }  # fmt: skip
    assert rows[9]["name"] is None  # type: ignore[index]
