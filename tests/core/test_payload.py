import orjson
from hypothesis import given
from hypothesis import strategies as st

from consumers.core.payload import JsonRows
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
