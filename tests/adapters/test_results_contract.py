"""The contract of result objects, in memory and in a folder."""

from pathlib import Path

import pytest

from consumers.adapters.memory_results import MemoryResults
from consumers.adapters.results_folder import FolderResults
from consumers.errors import EXIT_USAGE, Fatal
from consumers.ports import Location
from tests.adapters.results_contract import ResultsContract, Shelf


@pytest.fixture
def memory() -> Shelf:
    results = MemoryResults()

    async def read(key: str) -> bytes | None:
        return results.objects.get(("bucket", key))

    async def begun(key: str) -> int:
        return len([name for name in results.begun if name == ("bucket", key)])

    return Shelf(results, "bucket", read, begun)


@pytest.fixture
def folder(tmp_path: Path) -> Shelf:
    async def read(key: str) -> bytes | None:
        path = tmp_path / "bucket" / key
        return path.read_bytes() if path.exists() else None

    async def begun(key: str) -> int:
        return len(list((tmp_path / "bucket" / key).parent.glob(".*.part")))

    return Shelf(FolderResults(str(tmp_path)), "bucket", read, begun)


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
