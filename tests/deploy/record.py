"""Records what two real workers export, for the boards: `python -m tests.deploy.record`, by hand.

Rule: they run on the stack of `scripts/stack` (its variables are set), with topics of their own.
Both have a shadow; one is restarted; a stream has bad rows towards the end. The recording is
OpenMetrics with time stamps, as `promtool tsdb create-blocks-from openmetrics` reads it.
"""

import asyncio
import gzip
import os
import re
import signal
import sys
import tempfile
import uuid
from collections import defaultdict
from pathlib import Path

import aiohttp
import orjson
from aiokafka import AIOKafkaProducer

RECORDING = Path(__file__).parent / "recordings" / "two-workers.om.gz"
BEGIN_S = 1_800_000_000
EVERY_S = 5
SCRAPES = 36
RESTART_AT, POISON_AT = 14, 24
PORTS = (18931, 18932)
STREAMS = 8
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
_CONFIG = """
[model.shadow]
model = "rows-b"

[[models]]
name = "rows-b"
protocol = "http"
url = "{url}/predictions/rows"
"""

Samples = dict[str, list[str]]


async def produce(topic: str, poison: asyncio.Event) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=os.environ["PENSTOCK_KAFKA__BOOTSTRAP_SERVERS"])
    async with producer:
        while True:
            for number in range(STREAMS):
                rows = [[float(number)] * 16 for _ in range(20)]
                if number == 0 and poison.is_set():
                    rows[3] = ["oops"] * 16  # type: ignore[list-item]
                stream = f"site-1/cam-{number}"
                value = orjson.dumps({"stream": stream, "inline": rows})
                await producer.send(topic, value, stream.encode())
            await asyncio.sleep(0.5)


def note(page: str, number: int, at_s: int, samples: Samples) -> None:
    """Add one page; `samples` by metric, with its TYPE line first."""
    family = ""
    for line in page.splitlines():
        if line.startswith("# TYPE"):
            family = line
        match = _SAMPLE.match(line)
        if match is None or match[1].endswith("_created"):
            continue
        labels = f'job="penstock",instance="10.0.0.{number}:8900"'
        labels += f",{match[2]}" if match[2] else ""
        samples[family].append(f"{match[1]}{{{labels}}} {match[3]} {at_s}")


async def scrape(port: int, number: int, at_s: int, samples: Samples) -> None:
    is_up = 1
    try:
        async with (
            aiohttp.ClientSession(headers={"Accept": "application/openmetrics-text"}) as session,
            session.get(f"http://127.0.0.1:{port}/metrics") as answer,
        ):
            note(await answer.text(), number, at_s, samples)
    except aiohttp.ClientError:
        is_up = 0
    up = f'up{{job="penstock",instance="10.0.0.{number}:8900"}} {is_up} {at_s}'
    samples["# TYPE up gauge"].append(up)


async def start(port: int, config: Path) -> asyncio.subprocess.Process:
    environ = os.environ | {"PENSTOCK_HTTP__PORT": str(port)}
    command = (sys.executable, "-m", "penstock", "run", "--config", str(config))
    return await asyncio.create_subprocess_exec(*command, env=environ)


async def record(config: Path) -> Samples:
    samples: Samples = defaultdict(list)
    poison = asyncio.Event()
    topics = (sys.executable, "-m", "penstock", "topics", "create", "--config", str(config))
    await (await asyncio.create_subprocess_exec(*topics)).wait()
    workers = [await start(port, config) for port in PORTS]
    load = asyncio.create_task(produce(os.environ["PENSTOCK_KAFKA__INPUT_TOPIC"], poison))
    try:
        await asyncio.sleep(20)
        for turn in range(SCRAPES):
            for number, port in enumerate(PORTS, start=1):
                await scrape(port, number, BEGIN_S + turn * EVERY_S, samples)
            if turn == RESTART_AT:
                workers[1].send_signal(signal.SIGTERM)
                await workers[1].wait()
                workers[1] = await start(PORTS[1], config)
            if turn == POISON_AT:
                poison.set()
            await asyncio.sleep(EVERY_S)
    finally:
        load.cancel()
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
            await worker.wait()
    return samples


def main() -> None:
    unique = uuid.uuid4().hex[:8]
    os.environ |= {
        "PENSTOCK_KAFKA__INPUT_TOPIC": f"rec-in-{unique}",
        "PENSTOCK_KAFKA__GROUP": f"rec-{unique}",
        "PENSTOCK_OUTPUT__TOPIC": f"rec-out-{unique}",
        "PENSTOCK_OUTPUT__DLQ_TOPIC": f"rec-out-{unique}.dlq",
    }
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "penstock.toml"
        config.write_text(_CONFIG.format(url=os.environ["PENSTOCK_MODEL__URL"]))
        samples = asyncio.run(record(config))
    lines = [line for family, series in samples.items() for line in (family, *series)]
    RECORDING.write_bytes(gzip.compress("\n".join([*lines, "# EOF\n"]).encode(), mtime=0))


if __name__ == "__main__":
    main()
