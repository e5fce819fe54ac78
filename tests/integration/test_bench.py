"""`penstock bench` from end to end, with counts so small that its figures mean nothing."""

import os
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.services import Services
from tests.support.warm_start import PENSTOCK

# A bound that holds on any machine, if all is answered.
UNBOUNDED = "600000"


def bench(services: Services, report: Path, *arguments: str) -> dict[str, Any]:
    """Run a measuring command; its JSON report."""
    env = {
        "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS": services.bootstrap_servers,
        "PENSTOCK_OBJECTS__ENDPOINT_URL": services.endpoint_url,
        "PENSTOCK_OBJECTS__KEY": services.key,
        "PENSTOCK_OBJECTS__SECRET": services.secret,
        "PENSTOCK_OBJECTS__REGION": services.region,
        "PENSTOCK_MODEL__URL": services.model_url,
        "PENSTOCK_MODEL__NAME": services.model_name,
    }
    command = [*PENSTOCK, "bench", *arguments]
    hasty = ["--warm-up", "0", "--wait-for-quiet", "0", "--json", str(report)]
    subprocess.run([*command, *hasty], env={**os.environ, **env}, check=True)
    document: dict[str, Any] = orjson.loads(report.read_bytes())
    return document


def test_throughput_reports_the_worker_beside_the_other_clients(
    services: Services, tmp_path: Path
) -> None:
    counts = ("--rows-per-object", "500", "--rows", "20000", "--rounds", "1")
    document = bench(services, tmp_path / "report.json", "throughput", *counts)
    assert document["bench"] == "throughput"
    (summary,), (measured,) = document["summaries"], document["rounds"]
    assert (measured["objects"], measured["rows"]) == (40, 20_000)
    assert summary["rows_per_object"] == 500
    positive = ("ratio_to_direct", "ratio_to_seed", "peak_rss_mb", "rows_per_s")
    assert all(summary[name] > 0 for name in positive)


def frame(folder: Path) -> Path:
    """Any file is a row of bytes; one of 64 bytes is a row that the stack's model answers."""
    path = folder / "frame.bin"
    path.write_bytes(bytes(64))
    return path


def test_a_file_may_be_the_body_of_every_object(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_MODEL__REQUEST", "bytes")
    body = ("--body", str(frame(tmp_path)))
    few = ("--rows", "500", "--rounds", "1")
    document = bench(services, tmp_path / "report.json", "throughput", *few, *body)
    assert (document["body"], document["request"]) == ("frame.bin", "bytes")
    (measured,) = document["rounds"]
    assert (measured["rows"], measured["rows_per_object"]) == (500, 1)
    assert measured["ratio_to_direct"] > 0
    assert measured["ratio_to_seed"] is None
    counts = ("--streams", "2", "--hz", "10", "--seconds", "2", "--p99-ms", UNBOUNDED)
    document = bench(services, tmp_path / "report.json", "streams", *counts, *body)
    (trial,) = document["trials"]
    assert (document["rows"], trial["ticks"], trial["unanswered"]) == (1, 40, 0)


def test_streams_reports_every_trial(services: Services, tmp_path: Path) -> None:
    counts = ("--streams", "2", "--hz", "10", "--seconds", "2", "--p99-ms", UNBOUNDED)
    document = bench(services, tmp_path / "report.json", "streams", *counts)
    assert document["bench"] == "streams"
    assert document["streams"] == 0, "20 ticks a stream prove nothing"
    (trial,) = document["trials"]
    assert (trial["streams"], trial["ticks"], trial["unanswered"]) == (2, 40, 0)
    assert trial["held"]
    assert {"schedule", "Kafka in", "wait", "call"} <= trial["stages_ms"].keys()
    assert {"worker", "generator", "machine"} <= trial["cores"].keys()


def test_a_worker_can_be_tried_with_its_services_far_away(
    services: Services, tmp_path: Path
) -> None:
    """Each wait is longer than what any of these services takes, on a busy machine, too."""
    counts = ("--streams", "2", "--hz", "2", "--seconds", "2", "--p99-ms", UNBOUNDED)
    far = ("--store-ms", "400", "--model-ms", "600", "--kafka-ms", "200", "--slow", "0.5:900")
    document = bench(services, tmp_path / "report.json", "streams", *counts, *far)
    (trial,) = document["trials"]
    assert (trial["ticks"], trial["unanswered"]) == (8, 0)
    assert document["distance"]["slow"] == [0.5, 900]
    # Half of Kafka's way before the worker has a reference, and half of it behind the answer.
    assert trial["p50_ms"] > 100 + 400 * 0.3 + 600 * 0.5 + 100
    assert trial["stages_ms"]["call"] > 600 * 0.5
