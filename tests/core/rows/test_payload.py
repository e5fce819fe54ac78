import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.rows.payload import BytesRows, Columns, JsonRows, Matrix, Payload
from tests.core.builders import matrix


def test_a_matrix_is_cut_between_rows() -> None:
    cut = matrix(10).cut(3, 5)
    assert (cut.rows, cut.values.tolist()) == (2, [[3.0, 3.0], [4.0, 4.0]])


@given(st.lists(st.text(max_size=5), min_size=1, max_size=20), st.data())
def test_joined_json_is_cut_between_rows(texts: list[str], data: st.DataObject) -> None:
    rows = JsonRows.of([orjson.dumps(text) for text in texts])
    start = data.draw(st.integers(0, len(texts) - 1))
    stop = data.draw(st.integers(start + 1, len(texts)))
    cut = rows.cut(start, stop)
    assert orjson.loads(b"[%b]" % bytes(cut.body)) == texts[start:stop]
    again = cut.cut(0, 1)
    assert orjson.loads(bytes(again.body)) == texts[start]


def test_only_matrices_of_equal_width_share_a_request() -> None:
    assert matrix(2, columns=3).shape == matrix(9, columns=3).shape
    assert matrix(2, columns=3).shape != matrix(2, columns=4).shape


@pytest.mark.parametrize(
    "payload",
    [
        matrix(1_000),
        JsonRows.of([b"%d" % row for row in range(1_000)]),
        BytesRows.of([b"%d" % row for row in range(1_000)]),
        Columns(pa.record_batch({"a": list(range(1_000))}), "a"),
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_a_part_in_its_own_memory_keeps_no_other_rows(payload: Payload) -> None:
    part = payload.cut(10, 12).owned()
    assert part.rows == 2
    assert _held(part) < 100


def _held(payload: Payload) -> int:
    """What stays in memory with it."""
    match payload:
        case Matrix():
            base = payload.values.base
            return payload.nbytes if base is None else base.nbytes
        case Columns():
            return sum(
                buffer.size for buffer in payload.batch.column(0).buffers() if buffer is not None
            )
        case JsonRows() | BytesRows():
            return len(bytes(memoryview(payload.body).obj))
    raise AssertionError


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["x" * 20, "a", "b", "y"], pa.string_view()),
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 4], pa.int32()), pa.array(["a", "b"])),
        pa.array(["x", "a", "b", "a"]).dictionary_encode(),
        pa.array([[1], [2, 3], [], [4]]),
    ],
    ids=lambda column: str(column.type),
)
def test_rows_of_columns_are_copied_whatever_their_type_and_no_others(column: pa.Array) -> None:
    batch = pa.record_batch([column], names=["a"])
    part = Columns(batch, "").cut(1, 3).owned()
    assert part.batch.to_pylist() == batch.to_pylist()[1:3]
    much = pa.record_batch([pa.array([b"x" * (1 << 20), b"a"])], names=["a"])
    assert Columns(much, "").cut(1, 2).owned().batch.get_total_buffer_size() < 1 << 10
