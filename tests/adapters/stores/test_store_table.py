"""Every kind of answer of a store, for every client: what the worker does then is what the pages
say.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock import config
from penstock.adapters.s3.direct_get import DirectObjects
from penstock.adapters.s3.obstore_client import ObstoreObjects
from penstock.adapters.s3.s3fs_client import S3fsObjects
from penstock.adapters.stores.fsspec_client import FsspecObjects
from penstock.errors import Poison, Transient, Unreachable
from penstock.ports import Location, Objects
from tests.adapters.stores.faulty_store import Fault, FaultyStore, Request
from tests.adapters.stores.store_table import AGAIN, MEANINGS, READ, TABLE, WAITED, printed

SMALL = b"1,2\n" * 1000
# Above what comes in one piece, so that a cut leaves a rest that begins behind the first byte.
LARGE = b"1,2\n" * (9 << 18)
# Impatient only with silence. A busy machine was seen to need half a second for the first byte of
# an answer that is silent only later.
IMPATIENT_S, PATIENT_S = 2.0, 20.0
PAGE = Path(__file__).parents[3] / "docs" / "stores.md"


def client(name: str, url: str, read_timeout_s: float) -> Objects:
    settings = config.Objects(endpoint_url=url, key="key", secret="secret", region="us-east-1")
    if name == "s3fs":
        return S3fsObjects(settings, read_timeout_s=read_timeout_s)
    objects = ObstoreObjects(settings, read_timeout_s=read_timeout_s)
    if name == "obstore":
        return objects
    return DirectObjects(objects, settings, read_timeout_s=read_timeout_s)


async def outcome(objects: Objects, key: str, data: bytes) -> str:
    """By what the client raises, and whether the object was open by then: download goes by that."""
    body = None
    try:
        body = await objects.open(Location("bucket", key))
        is_right = b"".join([chunk async for chunk in body]) == data
        return READ if is_right and "null" not in (body.etag, body.version_id) else "WRONG"
    except Poison as error:
        return error.code
    except Transient as error:
        return WAITED if isinstance(error, Unreachable) and body is None else AGAIN
    finally:
        if body is not None:
            await body.aclose()


async def outcomes(name: str, faults: Sequence[Fault], data: bytes) -> list[str]:
    """Of every fault, in this order."""
    async with FaultyStore(data, faults) as store:
        patient = client(name, store.url, PATIENT_S)
        impatient = client(name, store.url, IMPATIENT_S)
        turns = asyncio.Semaphore(8)

        async def one(number: int, fault: Fault) -> str:
            objects = impatient if fault.silent else patient
            async with turns:
                return await outcome(objects, str(number), data)

        try:
            return await asyncio.gather(*(one(*each) for each in enumerate(faults)))
        finally:
            await patient.aclose()
            await impatient.aclose()


@pytest.mark.parametrize("request_for", ["first", "rest"])
@pytest.mark.parametrize("name", ["direct", "obstore", "s3fs"])
async def test_what_the_worker_does_is_what_the_table_says(name: str, request_for: Request) -> None:
    data = LARGE if request_for == "rest" else SMALL
    asked = [
        (fault, row.but.get(name, row.outcome))
        for row in TABLE
        for fault in row.faults
        if row.request == request_for
    ]
    found = await outcomes(name, [fault for fault, _ in asked], data)
    wrong = [
        f"{fault}: {got}, not {expected}"
        for (fault, expected), got in zip(asked, found, strict=True)
        if got != expected
    ]
    assert not wrong, "\n".join(wrong)


async def part(name: str, fault: Fault) -> str:
    async with FaultyStore(SMALL, [fault]) as store:
        if name == "http":
            place = Location(store.url.removeprefix("http://"), "bucket/0")
            objects: Objects = FsspecObjects(config.Store(url=store.url), name, section="stores.x")
        else:
            place, objects = Location("bucket", "0"), client(name, store.url, PATIENT_S)
        try:
            got = await objects.part(place, 1_000)
            return READ if got.data == SMALL[1_000:] and got.size == len(SMALL) else "WRONG"
        except Poison as error:
            return error.code
        except Transient as error:
            return WAITED if isinstance(error, Unreachable) else AGAIN
        finally:
            await objects.aclose()


@pytest.mark.parametrize("name", ["obstore", "s3fs", "http"])
async def test_a_part_is_the_bytes_asked_for_or_none(name: str) -> None:
    """An answer that says one range and has a body of another length was read without end, or
    taken for no answer, for which objects wait.
    """
    assert await part(name, Fault("rest")) == READ
    for said in ("bytes 1004-4003/4004", "bytes */4", None):
        assert await part(name, Fault("rest", headers={"Content-Range": said})) == AGAIN, said
    for length in ("1000000000000", None):
        endless = Fault("rest", endless=True, headers={"Content-Length": length})
        assert await part(name, endless) == AGAIN, length


async def test_over_http_a_part_is_of_the_version_that_was_opened() -> None:
    """The library looks at the tag before and after, and mirrors may differ in between."""
    assert await part("http", Fault("rest", headers={"ETag": '"other"'})) == "changed"
    assert await part("http", Fault("rest", headers={"ETag": None})) == READ
    assert await part("http", Fault("rest", headers={"Content-Encoding": "gzip"})) == AGAIN
    assert await part("http", Fault("rest", ignores_range=True)) == AGAIN


async def test_of_a_refusal_without_end_the_status_counts() -> None:
    for status, code in ((404, "not_found"), (403, "forbidden"), (500, AGAIN)):
        fault = Fault("rest", status=status, endless=True, headers={"Content-Length": None})
        assert await part("s3fs", fault) == code


async def test_the_same_length_twice_is_one_length_or_refused() -> None:
    """Both are right by RFC 9110, 8.6; the clients differ."""
    twice = [Fault(doubled={"Content-Length": str(len(SMALL))})]
    assert await outcomes("direct", twice, SMALL) == [READ]
    assert await outcomes("obstore", twice, SMALL) == [READ]
    assert await outcomes("s3fs", twice, SMALL) == [AGAIN]


def test_the_pages_print_the_table() -> None:
    page = PAGE.read_text()
    assert printed() in page
    for word, meaning in MEANINGS.items():
        assert f"- **{word}**: {meaning}" in " ".join(page.split()).replace(" - **", "\n- **")
