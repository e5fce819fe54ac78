"""The readers of docs/readers.md, in each language of this machine: after a crash and a change of
form, every answer once.
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.encodings.output_values import records_of
from realstack.kafka import Kafka
from tests.support.job import Job
from tests.support.loads import Load
from tests.support.topic_tools import Message
from tests.support.waiting import until
from tests.support.worker import penstock, running_worker

PAGE = Path(__file__).parents[2] / "docs" / "readers.md"
# Never within the test: so the second worker repeats all that the first has delivered.
NO_COMMITS = {"DELIVERY__COMMIT_INTERVAL_MS": 600_000}
IN_BLOCKS = {"OUTPUT__GRANULARITY": "block", "OUTPUT__BLOCK_ROWS": 7}


@pytest.fixture(scope="module")
def load() -> Load:
    return Load(8, rows=50)


def made(folder: Path, *command: str) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=400)


def python(folder: Path) -> list[str]:
    return [sys.executable, str(folder / "reader.python")]


def java(folder: Path) -> list[str]:
    (folder / "reader.java").rename(folder / "Reader.java")
    return ["java", "-cp", f"{Kafka().jars}/libs/*", str(folder / "Reader.java")]


def go(folder: Path) -> list[str]:
    (folder / "reader.go").rename(folder / "main.go")
    made(folder, "go", "mod", "init", "reader")
    made(folder, "go", "get", "github.com/twmb/franz-go@v1.18.1")
    made(folder, "go", "mod", "tidy")
    made(folder, "go", "build", "-o", "reader")
    return [str(folder / "reader")]


def javascript(folder: Path) -> list[str]:
    made(folder, "npm", "install", "--no-audit", "--no-fund", "kafkajs@2.2.4")
    return ["node", "reader.javascript"]


# For each language: the program that must be here, and a function that makes the command.
LANGUAGES: dict[str, tuple[str, Callable[[Path], list[str]]]] = {
    "python": (sys.executable, python),
    "java": ("java", java),
    "go": ("go", go),
    "javascript": ("node", javascript),
}


def test_each_language_of_the_page_is_run() -> None:
    assert re.findall(r"^```(\w+)$", PAGE.read_text(), re.MULTILINE) == list(LANGUAGES)


async def read(job: Job, language: str, folder: Path, ends: set[str]) -> list[str]:
    """The ids that the reader prints, until it has printed `ends`, each with its error."""
    program, command_of = LANGUAGES[language]
    if shutil.which(program) is None:
        return []
    blocks = rf"^```{language}\n(.*?)^```"
    (source,) = re.findall(blocks, PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (folder / f"reader.{language}").write_text(source)
    command = await asyncio.to_thread(command_of, folder)
    environ = os.environ | {
        "BROKERS": job.services.bootstrap_servers,
        "TOPIC": job.topics.output,
        "GROUP": f"{job.topics.input}-{language}",
    }
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    ids: list[str] = []
    assert process.stdout is not None
    try:
        while not ends <= set(ids):
            line = await asyncio.wait_for(process.stdout.readline(), 90)
            assert line, (await process.stderr.read()).decode() if process.stderr else ""
            ids += re.findall(r"^(\S+/\d+/\d+/\d+/[\d-]+) ", line.decode())
            assert not line.startswith(b"end/") or b"bad_row" in line, line
    finally:
        process.kill()
        await process.wait()
    return [id for id in ids if id not in ends]


@pytest.mark.timeout(900)
async def test_each_answer_is_read_once_after_a_crash_and_a_change_of_form(
    job: Job, tmp_path: Path
) -> None:
    rows = sum(map(len, job.expected().values()))
    async with running_worker(job.environment(**NO_COMMITS)) as worker:
        await job.announce()

        async def all_are_there() -> bool:
            return sum(map(len, (await job.places()).values())) >= rows

        await until(all_are_there, lambda: worker.said)
        await worker.kill()
    async with running_worker(job.environment(**IN_BLOCKS)) as worker:
        await job.finish(worker)
    log = await job.broker.records(job.topics.output)
    values = [record.value for records in log.values() for record in records]
    assert sum(len(records_of(value)) for value in values) == 2 * rows
    assert {value[:1] for value in values} == {b"{", b"["}
    seen = await penstock(
        "watch", "--since", "1h", "--until-now", "--json", environ=job.environment()
    )
    assert len(seen.stdout.splitlines()) == 2 * rows

    ends = {f"end/{number}/0/0/0" for number in log}
    last = [
        Message(
            {
                "id": f"end/{number}/0/0/0",
                "stream": "end",
                "model": "m",
                "prediction": None,
                "error": {"code": "bad_row", "message": "no number"},
            },
            number,
            b"end",
        )
        for number in log
    ]
    await job.broker.publish(job.topics.output, last)
    expected = sorted(place.id for places in job.expected().values() for place in places)
    for language in LANGUAGES:
        folder = tmp_path / language
        folder.mkdir()
        ids = await read(job, language, folder, ends)
        assert sorted(ids) == expected or shutil.which(LANGUAGES[language][0]) is None, language
