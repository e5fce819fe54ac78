"""docs/own-data.md is followed to the letter on the real stack, also if it was begun before."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker
from tests.support.waiting import DEADLINE_S
from tests.support.worker import own_port

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


async def test_the_page_works_and_can_be_repeated(
    services: Services, topics: Topics, broker: Broker, tmp_path: Path
) -> None:
    names = {
        "readings-answers": f"{topics.output}-page",
        "readings-workers": topics.input,
        "/readings": f"/{topics.input}",
        "9001": str(own_port()),
    }
    script = "\n".join(["set -euo pipefail", *blocks("own-data.md", "sh")])
    for name, ours in names.items():
        script = script.replace(name, ours)
    # The page of the worker has a port that others may have taken.
    script = script.replace(
        "penstock lint", f"export PENSTOCK_HTTP__PORT={own_port()}\npenstock lint"
    )
    (source,) = blocks("own-data.md", "python")
    (tmp_path / "score.py").write_text(source)
    for left in ("penstock.toml", "answers.jsonl", "data/plant/north/0001.csv"):  # from before
        (tmp_path / left).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / left).write_text("left")
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS": services.bootstrap_servers,
    }
    (expected,) = blocks("own-data.md", "json")
    try:
        done = followed(f"trap 'kill $(jobs -p)' EXIT\n{script}", environ, tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        answers = (tmp_path / "answers.jsonl").read_text().splitlines()
        documents = [json.loads(line) for line in expected.splitlines()]
        assert [json.loads(line)["prediction"] for line in answers] == documents
        assert "4 answers, 0 of them errors" in done.stderr
        assert re.search(r'plant/south.*"alarm":false', done.stdout)
    finally:
        await broker.delete(
            {names["readings-answers"], f"{names['readings-answers']}.dlq"} & await broker.topics()
        )


def followed(
    script: str, environ: dict[str, str], folder: Path, within_s: float = DEADLINE_S
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environ, timeout=within_s, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
