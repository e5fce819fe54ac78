"""The contract of result objects, in memory and in a folder."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from penstock import config
from penstock.adapters.memory import MemoryResults
from penstock.adapters.result_stores.results import RETRIES, FolderResults, open_results
from penstock.adapters.result_stores.uploads import PATIENCE
from penstock.errors import EXIT_USAGE, Fatal, PenstockError
from penstock.ports import Location
from tests.adapters.result_stores.contract import ResultsContract, Shelf
from tests.adapters.stores.s3_stub import Refusal, S3Stub


@pytest.fixture
def memory() -> Shelf:
    results = MemoryResults()

    async def read(key: str) -> bytes | None:
        return results.objects.get(("bucket", key))

    async def begun(key: str) -> int:
        return len([name for name in results.begun if name == ("bucket", key)])

    return Shelf(results, results, "bucket", read, begun)


@pytest.fixture
def folder(tmp_path: Path) -> Shelf:
    async def read(key: str) -> bytes | None:
        path = tmp_path / "bucket" / key
        return path.read_bytes() if path.exists() else None

    async def begun(key: str) -> int:
        return len(list((tmp_path / "bucket" / key).parent.glob(".*.part")))

    ours, another = (FolderResults(str(tmp_path)) for _ in range(2))
    return Shelf(ours, another, "bucket", read, begun)


class TestMemory(ResultsContract):
    @pytest.fixture
    def shelf(self, memory: Shelf) -> Shelf:
        return memory


class TestFolder(ResultsContract):
    @pytest.fixture
    def shelf(self, folder: Shelf) -> Shelf:
        return folder

    async def test_a_folder_that_cannot_be_written_is_a_usage_error(self, tmp_path: Path) -> None:
        (tmp_path / "bucket").write_bytes(b"a file")
        upload = FolderResults(str(tmp_path)).begin(Location("bucket", "a/b"))
        with pytest.raises(Fatal, match="let this user write there") as caught:
            await upload.write(b"x")
        assert caught.value.exit_code == EXIT_USAGE


async def test_a_write_that_is_cancelled_as_it_begins_leaves_no_file(tmp_path: Path) -> None:
    upload = FolderResults(str(tmp_path)).begin(Location("bucket", "a"))
    writing = asyncio.create_task(upload.write(b"x"))
    await asyncio.sleep(0)  # a thread makes the file
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await upload.abort()
    await asyncio.get_running_loop().shutdown_default_executor()  # waits for its threads
    assert list((tmp_path / "bucket").iterdir()) == []


def test_only_time_ends_the_tries_of_a_store_that_is_ill() -> None:
    shortest = RETRIES["max_retries"] * RETRIES["backoff"]["init_backoff"]
    assert shortest >= PATIENCE == RETRIES["retry_timeout"]


async def test_what_a_store_refuses_names_its_own_section() -> None:
    store = config.Store(url="s3://out", endpoint_url="http://127.0.0.1:9", key="k", secret="s" * 8)
    async with S3Stub({}) as stub:
        store = msgspec.structs.replace(store, endpoint_url=stub.url)
        stub.next.append(Refusal(301, "PermanentRedirect"))
        results = open_results(config.Config(stores={"us": store}), "s3://out/{bucket}/{key}.csv")
        with pytest.raises(PenstockError, match=r"stores\.us\."):
            await results.begin(Location("out", "a")).complete()
        await results.aclose()
