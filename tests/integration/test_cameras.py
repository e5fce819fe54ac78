"""docs/cameras.md is followed to the letter on the real stack."""

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.integration.test_own_data import blocks, followed
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker
from tests.support.worker import own_port

UNTIL_THEY_ARE_THERE = """
for look in 1 2 3 4 5 6 7 8; do
    sleep 6
    penstock verify --scenes --config penstock.toml > seen.json || true
    grep '"predictions": 200' seen.json && grep '"violations": {}' seen.json && break
done
"""


async def test_the_frames_of_the_page_are_in_scenes(
    services: Services, topics: Topics, broker: Broker, tmp_path: Path
) -> None:
    script = "\n".join(["set -euo pipefail", *blocks("cameras.md", "sh")])
    ours = {"shots-": f"{topics.output}-", "/shots": f"/{topics.input}", "9002": str(own_port())}
    for name, mine in ours.items():
        script = script.replace(name, mine)
    # Other tests keep the machine busy: three times as long at most.
    script = script.replace("sleep 20", UNTIL_THEY_ARE_THERE)
    # The bucket keeps its name.
    script = script.replace(f"s3:/{ours['/shots']}", "s3://shots")
    script = script.replace(
        "penstock lint", f"export PENSTOCK_HTTP__PORT={own_port()}\npenstock lint"
    )
    for name, source in zip(("look.py", "frames.py"), blocks("cameras.md", "python"), strict=True):
        (tmp_path / name).write_text(source)
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS": services.bootstrap_servers,
    }
    try:
        done = followed(f"trap 'kill $(jobs -p)' EXIT\n{script}", environ, tmp_path, 300.0)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = (tmp_path / "answers.jsonl").read_text().splitlines()
        answers = [json.loads(line) for line in lines]
        for answer in answers:
            name = answer["object"]["key"].rpartition("/")[2].removesuffix(".jpg")
            captured = datetime.strptime(name, "%Y%m%d_%H%M%S.%f").replace(tzinfo=UTC)
            assert answer["event_time"] == round(captured.timestamp() * 1000)
        verified = json.loads((tmp_path / "verified.json").read_text())
        assert (verified["predictions"], verified["violations"]) == (200, {})
        assert verified["in_scenes"] >= 0.95 * 200
        assert verified["closed_by"]["complete"] >= 0.8 * 50
    finally:
        made = {name for name in await broker.topics() if name.startswith(ours["shots-"])}
        await broker.delete(made)
