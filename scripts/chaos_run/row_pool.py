"""A pool of lines with the model's own answer to each, and the objects that are cut from it.

Rule: an object's rows are consecutive lines of the pool, so the number of a row gives its right
answer. Owner: the run.
"""

import asyncio
import gzip
import io

import aiohttp
import msgspec
import numpy as np

from chaos_run import poison
from chaos_run.plan import Object, Plan
from chaos_run.services_under_test import Place
from penstock.tools.simulation.announcements import tar

# How many lines the pool has.
LINES = 9_973
FEATURES = 16
# Rows of each member of an archive.
MEMBER_ROWS = 700


class Answer(msgspec.Struct, gc=False):
    """The example model's answer to a row."""

    label: int
    score: float


class Pool:
    """Made by `make_pool`."""

    def __init__(self, lines: list[bytes], answers: list[Answer]) -> None:
        self._lines = lines
        self.answers = answers

    def text(self, first: int, rows: int) -> bytes:
        at = first % LINES
        if at + rows <= LINES:
            return b"".join(self._lines[at : at + rows])
        whole, rest = divmod(rows - (LINES - at), LINES)
        return b"".join((*self._lines[at:], *self._lines * whole, *self._lines[:rest]))

    def body(self, one: Object) -> bytes:
        if one.form == "tar.gz":
            return gzip.compress(self._archive(one), 1, mtime=0)
        text = self.text(one.first_line, one.rows)
        return text if one.form == "csv" else gzip.compress(text, 1, mtime=0)

    def _archive(self, one: Object) -> bytes:
        end = one.first_line + one.rows
        starts = range(one.first_line, end, MEMBER_ROWS)
        texts = [self.text(at, min(MEMBER_ROWS, end - at)) for at in starts]
        return tar([(f"part-{number}.csv", text) for number, text in enumerate(texts)])


async def make_pool(place: Place) -> Pool:
    """Ask the model for its answer to every line, before the run starts."""
    rows = np.random.default_rng(1).standard_normal((LINES, FEATURES))
    text = io.StringIO()
    np.savetxt(text, rows, fmt="%.6g", delimiter=",")
    lines = text.getvalue().encode().splitlines(keepends=True)
    body = b"[" + b",".join(b"[" + line.rstrip() + b"]" for line in lines) + b"]"
    url = f"{place.config.model.url}/predictions/{place.config.model.name}"
    async with (
        aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session,
        session.post(url, data=io.BytesIO(body), raise_for_status=True) as response,
    ):
        answers = msgspec.json.decode(await response.read(), type=list[Answer])
    return Pool(lines, answers)


async def store(place: Place, pool: Pool, plan: Plan) -> None:
    client = place.s3()

    def put_all() -> None:
        for one in plan.objects:
            client.put_object(Bucket=place.bucket, Key=one.key, Body=pool.body(one))
        for key, body in poison.objects() if plan.poisons else ():
            client.put_object(Bucket=place.bucket, Key=key, Body=body)

    try:
        await asyncio.to_thread(put_all)
    finally:
        client.close()
