"""Result objects in a simulated world.

Rule: when a record that names a result arrives, it is compared with the bytes that are complete at
that time: a reader who finds a record also finds its result.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import orjson

from penstock.adapters.memory import MemoryResults, MemoryUpload
from penstock.core.records.result_names import NameScope, ResultNames
from penstock.encodings import result_formats
from penstock.errors import Unreachable
from penstock.ports import Location, Stored
from penstock.stages.result_objects import ResultTerms
from penstock.tools.simulation.checks.history import History
from penstock.tools.simulation.process_and_faults import FaultInjector, Process

# Each record and model has its own name, so that each result has one right content.
_NAMES: Final = ResultNames("s3://results/{model}/{partition}/{offset}.jsonl", "rows", NameScope())


def drawn_terms(random: Random) -> ResultTerms | None:
    """How results are written. None: the world has no result objects, which is so in half of the
    worlds.
    """
    mode = random.choice((None, None, "objects", "both"))
    if mode is None:
        return None
    return ResultTerms(
        _NAMES, result_formats.find(_NAMES.format), of_rows=mode == "both", of_objects=True
    )


class SimulatedResults:
    """The results that all workers share, as this worker's connection reaches them."""

    def __init__(self, results: MemoryResults, process: Process, injector: FaultInjector) -> None:
        self._results = results
        self._process = process
        self._injector = injector

    def begin(self, location: Location) -> "SimulatedUpload":
        return SimulatedUpload(self._results.begin(location), self._process, self._injector)

    async def has(self, location: Location) -> bool:
        return await self._results.has(location)

    async def aclose(self) -> None:
        return


class SimulatedUpload:
    """If a worker dies during an upload, the upload stays until another worker begins one with the
    same name.
    """

    def __init__(self, upload: MemoryUpload, process: Process, injector: FaultInjector) -> None:
        self._upload = upload
        self._process = process
        self._injector = injector

    async def write(self, data: bytes) -> None:
        await self._step()
        await self._upload.write(data)

    async def complete(self) -> Stored:
        await self._step()
        stored = await self._upload.complete()
        await self._injector.delay(self._injector.faults.store_s)
        await self._process.gate()
        return stored

    async def abort(self) -> None:
        if self._process.alive:
            await self._upload.abort()

    async def _step(self) -> None:
        await self._process.gate()
        await self._injector.delay(self._injector.faults.store_s)
        if self._injector.happens(self._injector.faults.body_breaks):
            raise Unreachable("the store takes no result")
        await self._process.gate()


def as_rows(
    records: Sequence[Mapping[str, Any]], results: MemoryResults, history: History, *, of_rows: bool
) -> Iterator[Mapping[str, Any]]:
    """The records as they would be without result objects. If rows have no records of their own,
    the record of an object is replaced by one record for each row in the object's result.
    """
    for record in records:
        if "result" not in record:
            yield record
            continue
        lines = _lines(record, results, history)
        about = {key: value for key, value in record.items() if key not in ("result", "last")}
        is_ended = bool(lines) and "error" not in record
        if not of_rows:
            yield from _rows(about, lines, is_ended=is_ended)
        if not is_ended:
            yield about | {"last": True}


def _lines(
    record: Mapping[str, Any], results: MemoryResults, history: History
) -> Sequence[dict[str, Any]]:
    result = record["result"]
    _, _, bucket, key = result["url"].split("/", 3)
    data = results.written.get((bucket, key, result["version"]))
    if data is None:
        raise history.broken(f"{record['id']} names a result that is not there: {result}")
    lines = [orjson.loads(line) for line in data.splitlines()]
    errors = sum("error" in line for line in lines)
    if (len(data), len(lines), errors) != (result["bytes"], result["rows"], result["errors"]):
        raise history.broken(f"{record['id']} says {result} of {len(lines)} rows, {errors} errors")
    history.counts["result"] += 1
    return lines


def _rows(
    about: Mapping[str, Any], lines: Sequence[dict[str, Any]], *, is_ended: bool
) -> Iterator[Mapping[str, Any]]:
    start = about["id"].rpartition("/")[0]
    common = {key: value for key, value in about.items() if key not in ("rows", "error")}
    for line in lines:
        yield (
            common
            | line
            | {"id": f"{start}/{line['row']}"}
            | ({"last": True, "rows": about["rows"]} if is_ended and line is lines[-1] else {})
        )
