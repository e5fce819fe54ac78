import numpy as np

from penstock.core.comparing.shadow_copies import Copies, ShadowCopy, requests
from penstock.core.rows.payload import Matrix


def matrix(first: int, rows: int) -> Matrix:
    return Matrix(np.arange(first, first + rows, dtype="<f4").reshape(rows, 1))


def copy(rows: int, nbytes: int) -> ShadowCopy:
    return ShadowCopy([], [], [], {}, 0.0, rows, nbytes)


def test_copies_that_wait_or_are_asked_are_bounded_by_rows_and_bytes() -> None:
    copies = Copies(most_rows=10, most_bytes=100)
    assert copies.has_room(10, 100)
    assert not copies.has_room(11, 1)
    assert not copies.has_room(1, 101)
    first = copy(6, 60)
    copies.put(first)
    assert not copies.has_room(5, 1)
    assert copies.take() is first
    assert copies.take() is None
    assert not copies.has_room(5, 1)  # it is being asked
    copies.done(first)
    assert copies.has_room(10, 100)


def test_a_batch_is_divided_into_requests_that_the_shadow_takes() -> None:
    payloads = [matrix(0, 3), matrix(3, 5), matrix(8, 1)]
    made = list(requests(payloads, 4))
    assert [[one.rows for one in each] for each in made] == [[3, 1], [4], [1]]
    cut = [one for each in made for one in each if isinstance(one, Matrix)]
    assert [row for one in cut for row in one.values[:, 0]] == list(range(9))
    (whole,) = requests(payloads, 9)
    assert all(one is other for one, other in zip(whole, payloads, strict=True))
