"""Checks that result objects hold the rows that the records on the output topic promise.

Rule: of each row only its number is kept, and whether it failed. Owner: `penstock verify`.
"""

import asyncio
import tempfile
from dataclasses import dataclass, field
from typing import IO, Final, NamedTuple

from penstock.core.progress.ranges import Ranges
from penstock.core.routing.store_choice import StoreChoice
from penstock.messages.prediction import Result
from penstock.ports import Objects
from penstock.verify.input_topic import Want
from penstock.verify.repeats import ObjectAt
from penstock.verify.result_rows import UNREADABLE, fetched, rows_of

# How many result objects are read in parallel. Each takes some megabytes and a temporary file.
AT_A_TIME: Final = 8


class Claim(NamedTuple):
    """What a record says about the result of an object, and the record's own place."""

    at: ObjectAt
    about: str
    want: Want
    rows: int
    result: Result
    model: str
    partition: int
    offset: int


class Claims:
    """For each object, the claims about its result. Claims about the same result count once. The
    newest claim is last.
    """

    def __init__(self) -> None:
        self.by_object: dict[ObjectAt, list[Claim]] = {}

    def add(self, claim: Claim) -> bool:
        """Note a claim. Returns True if it is the first claim about its object. If several claims
        are about the same result, only the newest is kept.
        """
        claims = self.by_object.setdefault(claim.at, [])
        is_first = not claims
        if claims and claims[-1].result.checksum == claim.result.checksum:
            claims.pop()
        claims.append(claim)
        return is_first


@dataclass(slots=True)
class Found:
    """The object that is stored under a result's name. `wrong`: why its rows could not be read."""

    nbytes: int = 0
    checksum: str = ""
    rows: int = 0
    seen: Ranges | None = None
    failed: dict[str, Ranges] = field(default_factory=dict)
    wrong: str | None = None


async def look(objects: Objects, places: StoreChoice, url: str) -> Found | str:
    """Read a result object. Returns its content, or a text that says why it cannot be read."""
    with tempfile.TemporaryFile() as file:
        stored = await fetched(objects, places, url, file)
        if isinstance(stored, str):
            return stored
        found = Found(stored.nbytes, stored.checksum)
        await asyncio.to_thread(_count, found, file, url)
        return found


def _count(found: Found, file: IO[bytes], url: str) -> None:
    found.seen = Ranges()
    last = -1
    try:
        for row, code, _ in rows_of(url, file, predictions=False):
            if row <= last:
                found.wrong = f"row {row} comes after row {last}"
                return
            last = row
            found.rows += 1
            found.seen.add(row, row + 1)
            if code is not None:
                found.failed.setdefault(code, Ranges()).add(row, row + 1)
    except UNREADABLE as error:
        found.wrong = f"it cannot be read: {error}"


def wrong_with(claims: list[Claim], found: Found | str) -> tuple[str | None, Claim]:
    """How the stored result differs from the claims (None: it does not), and the claim of the
    record to blame. A repeated answer may have other digits, so it is enough if the stored result
    matches one of the claims.
    """
    last = claims[-1]
    if isinstance(found, str):
        return f"its result {last.result.url} cannot be read: {found}", last
    same = [claim for claim in claims if claim.result.checksum == found.checksum]
    claim = same[-1] if same else last
    said = claim.result
    if not same:
        return (
            f"its result {said.url} has {found.nbytes} bytes, {found.checksum}; the record says "
            f"{said.bytes}, {said.checksum}"
        ), claim
    if found.wrong is not None:
        return f"its result {said.url}: {found.wrong}", claim
    assert found.seen is not None
    errors = sum(stop - start for rows in found.failed.values() for start, stop in rows)
    if (found.nbytes, found.rows, errors) != (said.bytes, said.rows, said.errors):
        return (
            f"its result {said.url} has {found.nbytes} bytes, {found.rows} rows and {errors} "
            f"errors; the record says {said.bytes}, {said.rows} and {said.errors}"
        ), claim
    if missing := claim.want.rows.within(0, claim.rows).minus(found.seen):
        return f"its result {said.url} lacks row {missing}", claim
    return None, claim
