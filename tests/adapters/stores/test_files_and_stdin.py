"""Local paths of `predict`: which files they name, and what is said of those that name none."""

import os
from pathlib import Path

import pytest

from penstock.adapters.memory import MemoryObjects
from penstock.adapters.stores.local_files import LOCAL, STDIN, LocalObjects, local_files
from penstock.errors import EXIT_USAGE, Fatal, Poison
from penstock.ports import Location


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "below").mkdir()
    for name in ("b.csv", "a.csv", "[1].csv", "below/c.csv"):
        (tmp_path / name).write_text("1,2\n")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("a.csv", ["a.csv"]),
        ("[1].csv", ["[1].csv"]),
        ("[ab].csv", ["a.csv", "b.csv"]),
        ("**", ["[1].csv", "a.csv", "b.csv", "below/c.csv"]),
        ("none*", []),
        ("below/../a.csv", ["a.csv"]),
        ("below/../[ab].csv", ["a.csv", "b.csv"]),
        ("below/./c.csv", ["below/c.csv"]),
    ],
)
async def test_a_path_names_a_file_and_a_glob_all_that_match(
    folder: Path, path: str, names: list[str]
) -> None:
    assert await anext(local_files([f"{folder}/{path}"])) == [f"{folder}/{name}" for name in names]


async def test_a_link_on_the_way_up_is_followed(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "d").mkdir()
    (elsewhere / "a.csv").write_bytes(b"")
    (folder / "link").symlink_to(elsewhere / "d")
    assert await anext(local_files([f"{folder}/link/../a.csv"])) == [f"{folder}/link/../a.csv"]


async def test_a_folder_and_a_pipe_are_refused_with_what_to_write_instead(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    for name, instead in (("below", "below/\\*"), ("pipe", "- < ")):
        with pytest.raises(Fatal, match=instead):
            await anext(local_files([f"{folder}/{name}"]))


@pytest.mark.parametrize("name", ["n" * 300, "n" * 300 + "*", "closed/a.csv"])
async def test_a_path_that_cannot_be_looked_at_is_to_be_corrected(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name.startswith("closed"):  # as root the test may look into every folder

        def closed(path: Path) -> bool:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(Path, "is_dir", closed)
    with pytest.raises(Fatal, match="correct the path") as caught:
        await anext(local_files([f"{folder}/{name}"]))
    assert caught.value.exit_code == EXIT_USAGE


async def test_a_standard_input_that_cannot_be_read_is_no_object_and_not_tried_again(
    tmp_path: Path,
) -> None:
    kept = os.dup(0)
    unreadable = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    os.dup2(unreadable, 0)
    objects = LocalObjects(MemoryObjects)
    try:
        with pytest.raises(Poison, match="standard input cannot be copied") as caught:
            await objects.open(Location(LOCAL, STDIN))
        assert caught.value.code == "not_found"
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(unreadable)
        await objects.aclose()
