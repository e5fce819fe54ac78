"""What every decoder promises: cuts do not matter, and only `Poison` escapes."""

import io
import json
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.rows.payload import Form
from penstock.errors import Poison
from penstock.formats.reading import decoded, turns
from penstock.formats.registry import claim_of, open_parser
from penstock.formats.runs import RowOptions, Run
from penstock.formats.text.csv_dialect import CsvOptions
from tests.formats.picture_bodies import JPEG, PNG
from tests.formats.support import decode_until_failure, gzipped, matrix, rows_of, tar_of
from tests.support.examples import examples

_CSV = (
    b'a,"b ""x""",c\r\n1,2.5,-3e2\n\n"4","5\n",6\r\n7,8\n9,x,1_0\n+1,.5, 7 \n,,\n'
    b'"a, b",\xff,0\n1,"2"3,4\n12345678901234567890123,-0,1e400\nnan,inf,1\r,\n1,2,3'
)
_LONG_CSV = b"".join(b"%d,%d.5,-%d\n" % (i, i, i) for i in range(150)) + b"x,1,2\n1,2\n3,4,5\n"
_NDJSON = (
    b'[1,2.5,3]\n[ 4, 5,6 ]\r\n\n[1,2]\n{"a":1}\n[1,[2],3]\n[true,1,2]\n[1,2,NaN]\n"x\n'
    b'[1e400,2,3]\n["1","2","3"]\n[-0,1E5,18446744073709551616]\n'
    b'  [7,8,9]  \nnull\n[]\n[1,2,"\xc3\xbc"]\n[7,8,9]'
)
_OBJECTS = b'{"a":1,"b":2}\n{"b":2,"a":1,"c":"x"}\n{"a":1}\n[1,2]\n{"a":"1","b":2}\n{"a":3,"b":4}'
_ARRAY = rb""" [ [1, 2,3],[4,5,"]\"],["],
 [7,8,9] , {"a":[1,{"b":"\\"}]},null,[1,2,3]
 ] """
_TAR = tar_of(
    {
        "a/one.csv": _LONG_CSV,
        "readme.txt": b"not rows",
        "b.ndjson.gz": gzipped(_NDJSON),
        "c.json": _ARRAY,
        "e.csv": b"",
        "n" * 150 + ".csv": b"1,2\n3,4",
    }
)

# The first 512 bytes tell the format and are read as one, so let the rows begin after them.
_SPACES = b" " * 600

OBJECTS: dict[str, tuple[str, bytes]] = {
    "csv": ("x.csv", _CSV),
    "csv in bulk": ("x.csv", _LONG_CSV),
    "csv with a byte order mark": ("x.csv", b"\xef\xbb\xbf" + _LONG_CSV),
    "csv without a name": ("x", _LONG_CSV * 2),
    "csv without a name, binary behind": ("x", _LONG_CSV * 2 + b"\0\n"),
    "csv, quote left open": ("x.csv", b'1,2\n3,"4\n5,6\n'),
    "csv, a quoted newline at the limit": ("x.csv", b'1,2\n"aaaaaaaaaaa\nbb,b",3\n4,5\n'),
    "csv of texts": ("x.csv", b"a,b\nc,d\ne,f\n"),
    "ndjson": ("x.jsonl", _NDJSON),
    "ndjson in bulk": ("x.ndjson", b"[1,2,3]\n" * 90 + _NDJSON),
    "ndjson of objects": ("x.ndjson", _OBJECTS),
    "json": ("x.json", _SPACES + _ARRAY),
    "json in bulk": ("x.json", b"[" + b"[1.5, 2],\n" * 90 + b"[3,4]]"),
    "json, one row broken": ("x.json", _SPACES + b"[[1,2],\n[3,,4],[5,6]]"),
    "json that never ends": ("x.json", _SPACES + b"[[1,2],[3,4],[5"),
    "json with more behind": ("x.json", _SPACES + b"[[1,2],[3,4]]]"),
    "gzip": ("x.csv.gz", gzipped(_LONG_CSV)),
    "gzip of two members, padded": ("x.csv.gz", gzipped(b"1,2\n3,") + gzipped(b"4\n") + b"\0" * 9),
    "gzip cut short": ("x.csv.gz", gzipped(_LONG_CSV)[:-9]),
    "gzip damaged": ("x.csv.gz", gzipped(_LONG_CSV)[:-8] + b"\0" * 8),
    "gzip with more behind": ("x.csv.gz", gzipped(_LONG_CSV) + b"more"),
    "tar": ("x.tar", _TAR),
    "tar, not named so": ("x", _TAR),
    "tar.gz": ("x.tgz", gzipped(_TAR)),
    "tar cut short": ("x.tar", _TAR[:3000]),
    "nothing": ("x.csv", b""),
    "image": ("x.jpg", JPEG),
    "image without a name": ("x", JPEG),
    "image cut short": ("x.png", PNG[:20]),
    "image, gzipped": ("x.png.gz", gzipped(PNG)),
    "images in a tar": (
        "x.tar",
        tar_of({"a.jpg": JPEG, "b.txt": b"no", "c.png": b"", "d.png": PNG}),
    ),
    "bytes without a name": ("x", bytes(range(256)) * 3),
}
FORMS: list[Form] = ["matrix", "json", "bytes", "columns"]

every_object = pytest.mark.parametrize("name", OBJECTS)
every_form = pytest.mark.parametrize("form", FORMS)


def outcome(key: str, data: bytes, options: RowOptions, cuts: list[int]) -> object:
    runs, failure = decode_until_failure(data, key, options, cuts=cuts)
    return rows_of(runs), None if failure is None else (failure.code, str(failure))


@every_object
@every_form
def test_byte_by_byte_gives_the_same_rows_as_all_at_once(name: str, form: Form) -> None:
    key, data = OBJECTS[name]
    options = RowOptions(form=form)
    assert outcome(key, data, options, list(range(len(data)))) == outcome(key, data, options, [])


@every_object
@every_form
def test_a_row_limit_holds_wherever_the_data_is_cut(name: str, form: Form) -> None:
    key, data = OBJECTS[name]
    options = RowOptions(form=form, row_bytes=12)
    assert outcome(key, data, options, list(range(len(data)))) == outcome(key, data, options, [])


@every_object
@every_form
def test_an_object_ends_where_it_may_have_no_more_rows_wherever_it_is_cut(
    name: str, form: Form
) -> None:
    key, data = OBJECTS[name]
    rows = rows_of(decode_until_failure(data, key, RowOptions(form=form))[0])
    limited = RowOptions(form=form, rows=2)
    for cuts in ([], list(range(len(data)))):
        found, failure = decode_until_failure(data, key, limited, cuts=cuts)
        assert rows_of(found) == rows[:2]
        if len(rows) > 2:
            assert failure is not None
            assert (failure.code, str(failure)) == (
                "too_large",
                "it has more than 2 rows (limits.rows)",
            )


def test_a_table_ends_where_it_may_have_no_more_rows() -> None:
    pq.write_table(pa.table({"a": range(100)}), out := io.BytesIO(), row_group_size=7)
    found: list[Run] = []
    pieces = decoded(RowOptions(rows=10), out.getvalue(), 100, claim_of("x.parquet"))
    with pytest.raises(Poison, match=r"more than 10 rows \(limits.rows\)"):
        found.extend(run for runs in pieces for run in runs)
    assert matrix(found) == [[float(row)] for row in range(10)]


@examples(1.5)
@given(st.data())
def test_cuts_do_not_change_rows_or_errors(data: st.DataObject) -> None:
    key, body = OBJECTS[data.draw(st.sampled_from(sorted(OBJECTS)))]
    form: Form = data.draw(st.sampled_from(FORMS))
    options = RowOptions(
        form=form,
        row_bytes=data.draw(st.sampled_from([5, 20, 1000])),
        fail_on_bad_row=data.draw(st.booleans()),
        columns=data.draw(st.sampled_from([None, (1, 0)])),
        own=(CsvOptions(header=data.draw(st.sampled_from(["auto", "yes", "no"]))),),
    )
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=8))
    assert outcome(key, body, options, cuts) == outcome(key, body, options, [])


_csv_like = st.text(alphabet='0123456789.,-e"\n\r ab_[]{}:\\ü', max_size=80).map(str.encode)
_json_like = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
_json_lines = st.lists(_json_like, max_size=6).map(
    lambda rows: "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode(
        "utf-8", "replace"
    )
)
_json_arrays = st.lists(_json_like, max_size=6).map(lambda rows: json.dumps(rows).encode())


def _damaged(draw: Callable[..., object], body: bytes) -> bytes:
    place = draw(st.integers(0, len(body)))
    extra = draw(st.binary(max_size=3))
    assert isinstance(place, int)
    assert isinstance(extra, bytes)
    return body[:place] + extra + body[place + 1 :]


@examples(2.5)
@given(st.data())
def test_any_bytes_give_rows_or_poison_and_never_depend_on_the_cut(data: st.DataObject) -> None:
    body = data.draw(st.binary(max_size=60) | _csv_like | _json_lines | _json_arrays)
    key = data.draw(st.sampled_from(["x.csv", "x.jsonl", "x.json", "x.csv.gz", "x.tar", "x"]))
    form: Form = data.draw(st.sampled_from(FORMS))
    options = RowOptions(form=form, row_bytes=data.draw(st.sampled_from([7, 1000])))
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=5))
    assert outcome(key, body, options, cuts) == outcome(key, body, options, [])


@examples(1.5)
@given(st.data())
def test_damage_gives_rows_or_poison_and_never_another_error(data: st.DataObject) -> None:
    key, body = OBJECTS[data.draw(st.sampled_from(sorted(OBJECTS)))]
    decode_until_failure(_damaged(data.draw, body), key)


@pytest.mark.parametrize("form", ["matrix", "json", "columns"])
def test_the_first_bad_row_fails_the_object_if_so_configured(form: Form) -> None:
    runs, failure = decode_until_failure(
        _LONG_CSV, "x.csv", RowOptions(form=form, fail_on_bad_row=True)
    )
    assert failure is not None
    assert failure.code == "bad_row"
    assert sum(run.rows for run in runs) == (151 if form == "json" else 150)
    assert str(failure).startswith("row 151: " if form == "json" else "row 150: ")


@pytest.mark.parametrize(
    "name", ["gzip with more behind", "gzip damaged", "json, one row broken", "tar cut short"]
)
def test_the_rows_before_a_failure_are_returned_first(name: str) -> None:
    key, data = OBJECTS[name]
    options = RowOptions()
    found = turns(open_parser(options, claim_of(key)), [data], options)
    assert next(found).runs
    with pytest.raises(Poison):
        list(found)
