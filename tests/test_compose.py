"""docker-compose.yml, as far as it can be checked without an engine."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "deploy" / "docker"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())[
    "services"
]
ONE_SHOT = {
    name
    for service in SERVICES.values()
    for name, needed in service.get("depends_on", {}).items()
    if needed["condition"] == "service_completed_successfully"
}
COMPOSE_COMMANDS = [["docker", "compose"], ["docker-compose"]]


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_pinned_to_a_version(name: str) -> None:
    tag = SERVICES[name]["image"].partition(":")[2]
    assert any(character.isdigit() for character in tag)
    assert tag != "latest"


@pytest.mark.parametrize("dockerfile", sorted(IMAGES.glob("*/Dockerfile")), ids=str)
def test_every_image_is_built_on_a_pinned_one(dockerfile: Path) -> None:
    bases = [
        line.split()[1] for line in dockerfile.read_text().splitlines() if line.startswith("FROM ")
    ]
    assert bases
    assert all(any(digit.isdigit() for digit in base.partition(":")[2]) for base in bases)


@pytest.mark.parametrize(
    ("extras", "asked"), [(None, "."), ("", "."), ("avro,media", ".[avro,media]")]
)
def test_the_worker_s_image_has_the_extras_that_are_asked_for(
    extras: str | None, asked: str
) -> None:
    lines = (IMAGES / "worker" / "Dockerfile").read_text().splitlines()
    (command,) = [line for line in lines if "pip install" in line]
    default = [line for line in lines if line.startswith("ARG EXTRAS=")]
    values = [part.removeprefix("ARG ") for part in default]
    values += [] if extras is None else [f"EXTRAS={extras}"]
    shell = "; ".join([*values, command.replace("RUN /opt/penstock/bin/pip", "echo")])
    output = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True).stdout
    assert output.split()[-1] == asked
    known = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    )
    assert {"avro", "images", "media"} <= known
    assert SERVICES["worker"]["build"]["args"] == {"EXTRAS": "${PENSTOCK_EXTRAS:-}"}


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - ONE_SHOT))
def test_every_lasting_service_has_a_health_check(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"]


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - ONE_SHOT))
def test_every_lasting_service_is_bounded_and_comes_back(name: str) -> None:
    assert SERVICES[name]["deploy"]["resources"]["limits"]["memory"]
    assert SERVICES[name]["restart"] in ("on-failure", "unless-stopped")


def test_several_workers_find_ports_and_prometheus_finds_them() -> None:
    (port,) = SERVICES["worker"]["ports"]
    assert ":-8900-8909}:8900" in port
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    (scrape,) = config["scrape_configs"]
    assert scrape["dns_sd_configs"][0]["names"] == ["worker"]


def test_the_worker_s_image_runs_without_root_and_without_a_compiler_or_sources() -> None:
    text = (IMAGES / "worker" / "Dockerfile").read_text()
    last = text[text.rindex("FROM ") :]
    assert "USER 65534:65534" in last
    assert "pip" not in last
    assert "python:3.13" in last


def test_every_file_that_a_service_mounts_is_there() -> None:
    mounts = [mount for service in SERVICES.values() for mount in service.get("volumes", ())]
    mounted = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    assert len(mounted) >= 5
    assert all((ROOT / path).exists() for path in mounted)


@pytest.mark.parametrize("name", sorted(ONE_SHOT))
def test_every_one_shot_service_runs_once(name: str) -> None:
    assert SERVICES[name]["restart"] == "no"


def test_the_job_waits_for_its_topics_its_bucket_and_its_model() -> None:
    assert SERVICES["worker"]["depends_on"].keys() == {"topics", "bucket", "torchserve"}
    assert {"topics", "bucket", "archive"} == ONE_SHOT


def test_the_bucket_s_events_are_answered_in_order_by_way_of_a_rekeyed_topic_that_is_made() -> None:
    between = SERVICES["worker"]["environment"]["PENSTOCK_KAFKA__REKEY"]
    assert between != SERVICES["minio"]["environment"]["MINIO_NOTIFY_KAFKA_TOPIC_P"]
    (made,) = re.findall("for topic in (.+); do", SERVICES["topics"]["entrypoint"][-1])
    assert between in made.split()


@pytest.mark.parametrize("command", COMPOSE_COMMANDS, ids=" ".join)
def test_compose_itself_accepts_the_file(command: list[str]) -> None:
    if not shutil.which(command[0]) or run([*command, "version"]).returncode != 0:
        pytest.skip(f"no {' '.join(command)} on this machine")
    checked = run([*command, "config", "--quiet"])
    assert checked.returncode == 0, checked.stderr


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
