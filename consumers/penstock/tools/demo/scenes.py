"""`penstock demo --scenes`: the frames of a site become one picture; a camera dies and comes back.

Rule: both workers are started by the commands that any user has; the verdict is from the topics
alone.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, get_args

import orjson
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

from penstock import config
from penstock.adapters.http.running_worker import page_of
from penstock.adapters.kafka.sink import KafkaSink
from penstock.errors import EXIT_CHECK_FAILED, Fatal
from penstock.messages.scene import ClosedBy
from penstock.ports import Outgoing
from penstock.process.children import running
from penstock.process.process_end import END_WITH_PARENT
from penstock.scenes.judge import ScenesReport, verify_scenes
from penstock.scenes.settings import names
from penstock.terminal_text import tell
from penstock.tools.demo.job import Interrupts, JobOptions, to_the_proof
from penstock.tools.demo.services import (
    DemoPlace,
    as_environment,
    embedded,
    free_http,
    open_browser,
    page_address,
    say,
)
from penstock.tools.demo.streams import frame, is_set_by, reference, sending, stream_name
from penstock.tools.demo.worker import ANSWER_S, DemoWorker, until

# The camera that dies, and the shares of the run after which it dies and comes back.
DYING, DIES_AT, BACK_AT = 1, 0.3, 0.65
# The lease is short, so that a demo of twenty seconds shows how the dead camera is noticed.
LEASE_MS = 2_000
# The clocks of a site's cameras differ by some milliseconds.
SKEWS_MS = (0, 7, -5, 12)
LOOK_S = 0.5
# Within this time even a busy machine closes and publishes the last scenes.
JUDGED_WITHIN_S = 30.0
LAST = 4


class DemoScenes:
    """A scenes worker, which runs beside the normal worker. `look` reads the page of the scenes
    worker.
    """

    def __init__(self, place: DemoPlace, period_ms: int, folder: Path) -> None:
        http = free_http()
        settings = {
            "SCENES__INPUT_TOPIC": place.cfg.output.topic,
            "SCENES__PERIOD_MS": str(period_ms),
            "SCENES__LEASE_MS": str(LEASE_MS),
            # The patience is as long as one period, because the embedded broker hands out one batch
            # at a time.
            "SCENES__PATIENCE_MS": str(period_ms),
        }
        self.environ = {
            **place.environ,
            **as_environment([http]),
            **{f"PENSTOCK_{name}": value for name, value in settings.items()},
        }
        self.cfg = config.load(None, self.environ)
        self.log = folder / "scenes.log"
        self._http = http

    async def look(self) -> Mapping[str, Any] | None:
        """The status that the page of the scenes worker shows; None if the page does not answer."""
        answer = await page_of(self._http, "/api/status", ANSWER_S)
        look: Mapping[str, Any] | None = None if answer is None else orjson.loads(answer)
        return look

    async def is_ready(self) -> bool:
        look = await self.look()
        return look is not None and bool(look["partitions"])


async def run_scenes_demo(options: JobOptions) -> None:
    """Run the demo. Raises `Fatal` with the code of the part that could not start, or with code 1
    if the proof fails.
    """
    await to_the_proof(partial(_play, options))


async def _play(options: JobOptions, interrupts: Interrupts) -> None:
    console = Console()
    async with AsyncExitStack() as cleanup:
        with console.status("starting"):
            place = await cleanup.enter_async_context(embedded(options.config_path, frames=True))
            say(place.cfg.http, console)
            sink = await cleanup.enter_async_context(sending(place))
            partitions = await sink.partitions(place.cfg.kafka.input_topic)
            scenes = DemoScenes(place, round(1000 / options.rate_hz), place.folder)
            tell(console, f"the page of the scenes: {page_address(scenes.cfg.http)}")
            # If a client asks the embedded broker for a topic, the broker creates it.
            for topic in (*place.cfg.topics, *names(scenes.cfg.scenes)):
                await sink.partitions(topic)
            await cleanup.enter_async_context(
                running(
                    "the scenes worker",
                    "penstock",
                    scenes.log,
                    arguments=[END_WITH_PARENT, "scenes"],
                    environ=scenes.environ,
                )
            )
            worker = DemoWorker(place, options.config_path)
            async with asyncio.TaskGroup() as tasks:
                working = tasks.create_task(worker.keep_running())
                await worker.until_ready()
                await until("the scenes worker", scenes.log, scenes.is_ready)
                if options.browser:
                    open_browser(place.cfg.http, console)
                watching = tasks.create_task(_show(scenes, console))
                interrupts.gently = True
                cameras = Cameras(place, sink, partitions, options.streams, options.rate_hz)
                await cameras.run(options.seconds, interrupts.stop)
                report = await _judged(scenes, cameras.said)
                watching.cancel()
                worker.stop()
                await working
    _prove(report, cameras.said, console)


class Cameras:
    """All cameras take their pictures at the same instants, but each stamps its pictures by its own
    clock.
    """

    def __init__(
        self, place: DemoPlace, sink: KafkaSink, partitions: int, streams: int, rate_hz: float
    ) -> None:
        self.said = 0
        self._place = place
        self._sink = sink
        self._partitions = partitions
        self._streams = streams
        self._period_ms = round(1000 / rate_hz)

    async def run(self, seconds: float, stop: asyncio.Event) -> None:
        began_ms = int(time.time() * 1000) // self._period_ms * self._period_ms
        for instant in range(int(seconds * 1000 / self._period_ms)):
            due_ms = began_ms + instant * self._period_ms
            if await is_set_by(stop, due_ms / 1000):
                return
            share = instant * self._period_ms / 1000 / seconds
            is_dead = DIES_AT <= share < BACK_AT
            alive = [n for n in range(self._streams) if not (is_dead and n == DYING)]
            await self._say(instant, due_ms, alive)

    async def _say(self, instant: int, due_ms: int, cameras: list[int]) -> None:
        by_partition: dict[int, Outgoing] = {}
        topic = self._place.cfg.kafka.input_topic
        for camera in cameras:
            partition, made = camera % self._partitions, frame(camera, instant)
            await self._place.write(made.key, made.body)
            out = by_partition.setdefault(partition, Outgoing(topic, partition, [], []))
            out.keys.append(stream_name(camera).encode())
            at_ms = due_ms + SKEWS_MS[camera % len(SKEWS_MS)]
            out.values.append(reference(self._place, camera, made, at_ms))
        for out in by_partition.values():
            await (await self._sink.send(out))
        self.said += len(cameras)


async def _show(scenes: DemoScenes, console: Console) -> None:
    """Show a table on a terminal; elsewhere print a line every two seconds."""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            look = await scenes.look()
            if look is not None and console.is_terminal:
                live.update(view(look), refresh=True)
            elif look is not None:
                tell(console, line(look))
            await asyncio.sleep(LOOK_S if console.is_terminal else 4 * LOOK_S)


def line(look: Mapping[str, Any]) -> str:
    sites = []
    for site in look["sites"]:
        states = [each["state"] for each in site["members"]]
        gone = [each["member"] for each in site["members"] if each["state"] != "present"]
        away = f" (not {', '.join(gone)})" if gone else ""
        sites.append(f"{site['site']}: {states.count('present')} of {len(states)}{away}")
    return "; ".join(sites) or "no site yet"


def view(look: Mapping[str, Any]) -> RenderableType:
    colours = {"present": "green", "late": "yellow", "gone": "red"}
    table = Table("site", "members", "scenes", "complete", "last scenes", box=None)
    for site in look["sites"]:
        counts = site["counts"]
        closed = [counts.get(why, 0) for why in get_args(ClosedBy)]
        members = " ".join(
            f"[{colours[each['state']]}]{each['member']}[/]" for each in site["members"]
        )
        last = " ".join(f"{each['present']}/{each['members']}" for each in site["last"][:LAST])
        row = [site["site"], members, f"{sum(closed):,}", f"{closed[0]:,}", last]
        table.add_row(*row)
    return Group(table, "green is present, yellow late, red gone")


async def _judged(scenes: DemoScenes, sent: int) -> ScenesReport:
    """Returns the verdict as soon as every prediction is in its place. If this takes longer than
    `JUDGED_WITHIN_S`, the verdict of that moment is returned.
    """
    until_s = time.monotonic() + JUDGED_WITHIN_S
    while True:
        report = await verify_scenes(scenes.cfg)
        is_all = report.ok and report.predictions == sent
        if is_all or time.monotonic() > until_s:
            return report
        await asyncio.sleep(LOOK_S)


def _prove(report: ScenesReport, sent: int, console: Console) -> None:
    if not report.ok or report.predictions != sent:
        console.print(report.as_json())
        raise Fatal(
            f"the proof failed: {sent:,} pictures were taken, {report.predictions:,} predicted; "
            f"{report.violations or 'no promise is broken'}",
            exit_code=EXIT_CHECK_FAILED,
        )
    closed = ", ".join(f"{count:,} {why}" for why, count in sorted(report.closed_by.items()))
    tell(
        console,
        f"[bold green]✔ {report.predictions:,} predictions: {report.in_scenes:,} in "
        f"{report.scenes:,} scenes ({closed}), {report.late:,} late, each in one place, in order; "
        "no scene twice with other content.[/]",
    )
