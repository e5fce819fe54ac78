"""npy: which rows an array is, in every order and type; headers that lie; members of archives."""

import io
import zipfile
from typing import Any

import numpy as np
import pytest

from penstock.core.rows.payload import JsonRows
from penstock.errors import Poison
from penstock.formats.reading import decoded
from penstock.formats.registry import claim_of, formats
from penstock.formats.runs import RowOptions, Run
from penstock.formats.source import Need
from penstock.formats.tables import npy
from tests.formats.support import (
    by_ranges,
    decode,
    decode_until_failure,
    elements,
    gzipped,
    matrix,
    tar_of,
)

DTYPES = ["<f4", ">f4", "<f8", ">f8", "<i2", ">i8", "u1", "?", "<f2", "<u4"]


def saved(values: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


def runs_of(data: bytes, options: RowOptions | None = None, key: str = "x.npy") -> list[Run]:
    return [
        run for runs in decoded(options or RowOptions(), data, 1000, claim_of(key)) for run in runs
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(7,), (7, 1), (5, 3), (4, 2, 3), (1, 1, 1, 2)])
def test_the_first_axis_is_rows_in_every_order_and_type(
    dtype: str, order: Any, shape: tuple[int, ...]
) -> None:
    values = np.asarray((np.arange(np.prod(shape)) % 97).reshape(shape), dtype, order=order)
    expected = values.reshape(shape[0], -1).astype("f").tolist()
    assert matrix(runs_of(saved(values))) == expected
    for key in ("x.npy.gz", "x.npy"):
        packed = gzipped(saved(values)) if key.endswith("gz") else saved(values)
        assert matrix(decode(packed, key)) == expected


def test_a_lone_number_is_one_row() -> None:
    assert matrix(runs_of(saved(np.float64(2.5)))) == [[2.5]]


def test_an_array_without_rows_has_none() -> None:
    assert runs_of(saved(np.zeros((0, 3)))) == []


@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_that_nobody_wants_are_not_fetched(order: Any) -> None:
    data = saved(np.asarray(np.arange(600_000.0).reshape(200_000, 3), order=order))
    fetched: list[Need] = []
    steps = by_ranges(
        RowOptions(), formats()["npy"], data, lambda start, stop: stop > 190_000, fetched
    )
    runs = [run for step in steps for run in step]
    assert sum(run.rows for run in runs) == 200_000
    assert matrix([runs[-1]])[-1] == [599_997, 599_998, 599_999]
    assert sum(need.stop - need.start for need in fetched) < len(data) * 0.9
    wanted = sum(run.rows for run in runs if run.payload)
    assert 10_000 <= wanted < 200_000


def test_json_rows_are_arrays_and_columns_are_chosen_by_place() -> None:
    data = saved(np.array([[1, 2, 3], [4, 5, 6]]))
    runs = runs_of(data, RowOptions(form="json", columns=[2, 0]))
    assert isinstance(runs[0].payload, JsonRows)
    assert elements(runs) == [[3, 1], [6, 4]]
    for absent in (3, "temp"):
        with pytest.raises(Poison, match=f"no column {absent} .* no names but numbers, 0 to 2"):
            runs_of(data, RowOptions(columns=[absent]))


def test_missing_stands_for_nan() -> None:
    data = saved(np.array([[1, np.nan]]))
    assert matrix(runs_of(data, RowOptions(missing=0.0))) == [[1, 0]]


@pytest.mark.parametrize(
    "values",
    [
        np.array([{"a": 1}], object),
        np.array(["text"]),
        np.array([1 + 2j]),
        np.zeros(3, [("a", "f4"), ("b", "i4")]),
        np.array(["2026-11-21"], "datetime64[s]"),
        np.zeros((3, 0)),
    ],
)
def test_what_holds_no_numbers_is_bad_format(values: Any) -> None:
    out = io.BytesIO()
    np.save(out, values, allow_pickle=True)
    for read in (runs_of, lambda data: decode(gzipped(data), "x.npy.gz")):
        with pytest.raises(Poison) as caught:
            read(out.getvalue())
        assert caught.value.code == "bad_format"


def with_header(text: str, data: bytes = b"") -> bytes:
    header = text.encode().ljust(118) + b"\n"
    return npy.MAGIC + b"\x01\0" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999, 4)}", "bad_format"),
        ("{'descr': '<f4', 'fortran_order': True, 'shape': (9999999999, 4)}", "bad_format"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4)}", "bad_format"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 999999)}", "too_large"),
        ("{'descr': '|V99999999', 'fortran_order': False, 'shape': (1,)}", "bad_format"),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "bad_format"),
        ("__import__('os').system('true')", "bad_format"),
        ("[" * 100, "bad_format"),
    ],
)
def test_a_header_that_lies_is_answered_by_its_code(header: str, code: str) -> None:
    for data in (with_header(header), with_header(header, bytes(64))):
        with pytest.raises(Poison) as caught:
            runs_of(data)
        assert caught.value.code == code
        failure = decode_until_failure(gzipped(data), "x.npy.gz")[1]
        assert failure is not None
        assert failure.code in (code, "too_large")


def test_what_is_said_of_a_header_is_the_same_at_each_try() -> None:
    message = str(failure_of("{'descr': '<f4', 'fortran_order': Truu, 'shape': (3, 2)}"))
    assert message == "the npy header cannot be read: malformed node or string on line 1"


def failure_of(header: str) -> Poison:
    with pytest.raises(Poison) as caught:
        runs_of(with_header(header))
    return caught.value


@pytest.mark.parametrize("tenth", range(1, 10))
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_that_breaks_off_is_bad_format(tenth: int, order: Any) -> None:
    data = saved(np.asarray(np.arange(3000.0).reshape(1000, 3), order=order))
    data = data[: len(data) * tenth // 10]
    with pytest.raises(Poison) as caught:
        runs_of(data)
    assert caught.value.code == "bad_format"
    failure = decode_until_failure(gzipped(data), "x.npy.gz", cuts=[50])[1]
    assert failure is not None
    assert failure.code == "bad_format"


def test_what_follows_the_array_is_not_passed_over() -> None:
    data = saved(np.arange(3.0)) + b"more"
    with pytest.raises(Poison):
        runs_of(data)
    with pytest.raises(Poison, match="follows"):
        decode(gzipped(data), "x.npy.gz")


@pytest.mark.parametrize("order", ["C", "F"])
def test_members_of_tar_and_npz_are_read(order: Any) -> None:
    first, second = np.asarray([[1, 2], [3, 4]], "f", order=order), np.array([5.0, 6.0])
    assert matrix(decode(tar_of({"a.npy": saved(first)}), "x.tar")) == [[1, 2], [3, 4]]
    for save in (np.savez, np.savez_compressed):
        out = io.BytesIO()
        save(out, a=first, b=second)
        runs = runs_of(out.getvalue(), key="x.npz")
        assert [run.member for run in runs] == ["a.npy", "b.npy"]
        assert matrix(runs) == [[1, 2], [3, 4], [5], [6]]


def test_fortrans_order_inside_an_archive_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npy, "MOST_HELD_BYTES", 100)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.npy", saved(np.asfortranarray(np.zeros((10, 5)))))
        archive.writestr("b.npy", saved(np.zeros((1, 2))))
    (bad, good) = runs_of(out.getvalue(), key="x.npz")
    assert "object of its own" in str(bad.error)
    assert matrix([good]) == [[0.0, 0.0]]


def test_a_long_double_is_a_number_in_json_and_as_float32() -> None:
    data = saved(np.array([[1.5, 2], [np.nan, "1e4000"]], np.longdouble))
    assert elements(runs_of(data, RowOptions(form="json"))) == [[1.5, 2.0], [None, None]]
    assert matrix(runs_of(data))[0] == [1.5, 2.0]
