"""Runs a pipeline up to an end that somebody else sees.

Rule: the end is a stop like any other: a drain. Owner: the call or the command.
"""

import asyncio

from penstock.pipeline.life import Pipeline


async def run_until(pipeline: Pipeline, ended: asyncio.Event) -> None:
    """Run until `ended` is set, the pipeline is stopped, or it fails."""
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(pipeline.run())
        waiting = tasks.create_task(ended.wait())
        await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        pipeline.stop()
