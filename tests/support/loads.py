"""Archives of rows for the real services, and what must be on the output topic when all are
answered.

Rule: the expectation is computed from the archives alone, by nothing of the product.
"""

import gzip
import io
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tests.support.reference_model import Rows, random_rows
from tests.support.topic_tools import Message, Record


def csv(rows: Rows) -> bytes:
    """Nine digits tell every float32 apart."""
    text = io.StringIO()
    np.savetxt(text, rows, fmt="%.9g", delimiter=",")
    return text.getvalue().encode()


def tar_gz(members: Iterable[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), compresslevel=1, mtime=0)


@dataclass(frozen=True)
class Archive:
    """A tar.gz of CSV files: `sizes` are the rows of its members."""

    key: str
    stream: str
    partition: int
    offset: int
    sizes: tuple[int, ...]
    rows: Rows

    @property
    def data(self) -> bytes:
        parts = np.split(self.rows, np.cumsum(self.sizes)[:-1])
        return tar_gz((f"part-{i}.csv", csv(part)) for i, part in enumerate(parts))


class Place(NamedTuple):
    """Which row an answer is for, and all it says besides the answer."""

    id: str
    stream: str
    key: str
    member: str | None
    row: int | None
    last: bool
    rows: int | None


class Load:
    """So many archives of up to about `rows` rows, dealt to partitions and streams in turn."""

    def __init__(self, archives: int, *, rows: int, partitions: int = 4, streams: int = 8) -> None:
        self.archives: list[Archive] = []
        for number in range(archives):
            total = 1 + number * 37 % rows
            first = total * (number % 3) // 3
            sizes = (first, 0, total - first)
            stream = number % streams
            self.archives.append(
                Archive(
                    f"site-{stream}/{number:03}.tar.gz",
                    f"site-{stream}",
                    stream % partitions,
                    sum(other.partition == stream % partitions for other in self.archives),
                    sizes,
                    random_rows(total, seed=number),
                )
            )

    @property
    def rows(self) -> Rows:
        """Of all archives, in the order of `archives`."""
        return np.concatenate([archive.rows for archive in self.archives])

    @property
    def ends(self) -> dict[int, int]:
        """Of the input topic, when all are announced."""
        return {archive.partition: archive.offset + 1 for archive in self.archives}

    def store(self, s3: Any, bucket: str) -> None:
        for archive in self.archives:
            s3.put_object(Bucket=bucket, Key=archive.key, Body=archive.data)

    def messages(self, bucket: str) -> list[Message]:
        return [
            Message(
                {"bucket": bucket, "key": archive.key, "stream": archive.stream}, archive.partition
            )
            for archive in self.archives
        ]

    def places(self, topic: str, below: Mapping[int, int] | None = None) -> dict[int, list[Place]]:
        """What must be on the output topic, by partition; of the records below these offsets."""
        places: dict[int, list[Place]] = {partition: [] for partition in sorted(self.ends)}
        for archive in self.archives:
            if below is None or archive.offset < below.get(archive.partition, 0):
                places[archive.partition] += _places(archive, topic)
        return places

    def answers(self, topic: str, answers: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """By id; `answers` are those of `rows`."""
        ids = (place.id for archive in self.archives for place in _places(archive, topic))
        return dict(zip(ids, answers, strict=True))


def _places(archive: Archive, topic: str) -> list[Place]:
    members = np.repeat(np.arange(len(archive.sizes)), archive.sizes).tolist()
    total = len(archive.rows)
    record = f"{topic}/{archive.partition}/{archive.offset}/0"
    return [
        Place(
            f"{record}/{row}",
            archive.stream,
            archive.key,
            f"part-{member}.csv",
            row,
            row == total - 1,
            total if row == total - 1 else None,
        )
        for row, member in enumerate(members)
    ]


def places_of(output: Mapping[int, Sequence[Record]]) -> dict[int, list[Place]]:
    """What is on the output topic, by partition."""
    return {number: [_place(record) for record in records] for number, records in output.items()}


def _place(record: Record) -> Place:
    found = record.document
    return Place(
        found["id"],
        found["stream"],
        found["object"]["key"],
        found.get("member"),
        found["row"],
        found.get("last", False),
        found.get("rows"),
    )


def first_of_each(places: Mapping[int, Sequence[Place]]) -> dict[int, list[Place]]:
    """As a reader sees them who de-duplicates by id."""
    return {
        # A dictionary keeps the place at which a key first came.
        number: list({place.id: place for place in found}.values())
        for number, found in places.items()
    }


def assert_predicted(
    output: Mapping[int, Sequence[Record]], expected: Mapping[str, dict[str, Any]]
) -> None:
    """Every record's prediction is the expected one of its id, to 1e-5."""
    documents = [record.document for records in output.values() for record in records]
    wanted = [expected[document["id"]] for document in documents]
    predictions = [document["prediction"] for document in documents]
    assert [answer["label"] for answer in predictions] == [answer["label"] for answer in wanted]
    np.testing.assert_allclose(_scores(predictions), _scores(wanted), rtol=0, atol=1e-5)


def _scores(answers: Sequence[dict[str, Any]]) -> npt.NDArray[np.float64]:
    return np.array([answer["score"] for answer in answers])
