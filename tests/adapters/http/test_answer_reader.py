"""Answers of HTTP/1.1 as servers write them, cut anywhere."""

import gc
import tracemalloc

import pytest

from penstock.adapters.http.answer_reader import (
    Answer,
    AnswerReader,
    TooLong,
    TooManyValues,
    Unusable,
    wanting,
)

FIELDS = wanting("ETag")
MOST, MOST_COMPLAINT = 100, 8


def reader() -> AnswerReader:
    return AnswerReader(FIELDS, MOST, MOST_COMPLAINT)


def read(raw: bytes) -> tuple[Answer | None, bool]:
    """The answer, and whether its connection may go on, however the bytes come."""
    found = []
    for size in (len(raw) or 1, 7, 1):
        one = reader()
        answer = None
        for start in range(0, len(raw), size):
            answer = one.feed(raw[start : start + size])
            if answer is not None:
                break
        found.append((answer, one.keeps))
    assert found[0] == found[1] == found[2]
    return found[0]


def feed(raw: bytes, size: int) -> None:
    one = reader()
    for start in range(0, len(raw), size):
        assert one.feed(raw[start : start + size]) is None


def said(*lines: str, body: bytes = b"", status: str = "HTTP/1.1 200 OK") -> bytes:
    return "\r\n".join([status, *lines]).encode() + b"\r\n\r\n" + body


def test_a_body_of_a_known_length() -> None:
    raw = said("Content-Length: 3", 'eTAG:  "x" ', "Server: y", body=b"abc")
    assert read(raw) == (
        Answer(200, {b"content-length": b"3", b"etag": b'"x"'}, b"abc"),
        True,
    )


def test_an_empty_body() -> None:
    answer, keeps = read(said("Content-Length: 0"))
    assert answer is not None
    assert (answer.body, keeps) == (b"", True)


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_a_status_without_a_body(status: str) -> None:
    answer, _ = read(said("ETag: x", status=f"HTTP/1.1 {status}"))
    assert answer is not None
    assert answer.body == b""


def test_chunks_with_extensions_and_trailers() -> None:
    body = b"3;a=b\r\nabc\r\n0A\r\n\r\n\r\n345678\r\n0\r\nTrailer: x\r\n\r\n"
    answer, keeps = read(said("Transfer-Encoding: Chunked", body=body))
    assert answer is not None
    assert (answer.body, keeps) == (b"abc\r\n\r\n345678", True)


def test_what_only_says_that_an_answer_will_come_is_passed_over() -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    answer, keeps = read(early + said("Content-Length: 1", body=b"x"))
    assert answer is not None
    assert (answer.status, answer.body, keeps) == (200, b"x", True)


def test_a_protocol_that_nobody_asked_for_is_the_answer() -> None:
    answer, keeps = read(said("Upgrade: x", status="HTTP/1.1 101 Switching Protocols"))
    assert answer is not None
    assert (answer.status, keeps) == (101, False)


def test_without_a_length_the_end_of_the_connection_is_the_end() -> None:
    one = reader()
    assert one.feed(said(body=b"ab")) is None
    assert one.feed(b"cd") is None
    assert one.end() == Answer(200, {}, b"abcd")
    assert not one.keeps


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200",
        said("Content-Length: 9", body=b"abc"),
        said("Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\n"),
    ],
)
def test_what_breaks_off_is_no_answer(raw: bytes) -> None:
    one = reader()
    assert one.feed(raw) is None
    assert one.end() is None
    assert one.has_begun is bool(raw)


@pytest.mark.parametrize(
    "raw",
    [
        said("Content-Length: 1", "Connection: close", body=b"x"),
        said("Content-Length: 1", "Connection: x", "Connection: Close", body=b"x"),
        said("Content-Length: 1", body=b"x", status="HTTP/1.0 200 OK"),
        said("Content-Length: 1", body=b"x", status="HTTP/1.1 400 Bad"),
    ],
)
def test_after_these_answers_the_connection_is_left(raw: bytes) -> None:
    answer, keeps = read(raw)
    assert answer is not None
    assert (answer.body, keeps) == (b"x", False)


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000,
        said("Content-Length: -1"),
        said("Content-Length: 0x1"),
        said("Content-Length: 9" + "9" * 20),
        said("Content-Length: 1, 1", body=b"x"),
        said("Content-Length: 1", "Content-Length: 2", body=b"xx"),
        said("Content-Length: 1", "Content-Length: 1", body=b"x"),
        # A sign of request smuggling (RFC 9112, 6.3).
        said("Content-Length: 3", "Transfer-Encoding: chunked", body=b"1\r\nx\r\n0\r\n\r\n"),
        said("Content-Length: 1\nX: y", body=b"x"),
        said("X: y", " folded", "Content-Length: 1", body=b"x"),
        said("Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
        said("Transfer-Encoding: chunked", body=b"x\r\n"),
        said("Transfer-Encoding: chunked", body=b"-1\r\n"),
        said("Transfer-Encoding: chunked", body=b"1\r\nab\r\n"),
        said("Transfer-Encoding: chunked", body=b"0" * 90_000),
        said("Transfer-Encoding: chunked", body=b"0\r\n" + b"X: y\r\n" * 20_000),
    ],
    ids=range(21),
)
def test_what_is_no_http_or_contradicts_itself_is_refused(raw: bytes) -> None:
    for size in (len(raw), 5):
        with pytest.raises(Unusable):
            feed(raw, size)


@pytest.mark.parametrize(
    "raw",
    [
        said("Content-Length: 1", body=b"xy"),
        said("Transfer-Encoding: chunked", body=b"0\r\n\r\nx"),
    ],
)
def test_more_than_the_answer_is_refused(raw: bytes) -> None:
    with pytest.raises(Unusable, match="more bytes"):
        reader().feed(raw)


@pytest.mark.parametrize(
    "raw",
    [
        said(f"Content-Length: {MOST + 1}", body=b"x" * (MOST + 1)),
        said(body=b"x" * (MOST + 1)),
        said("Transfer-Encoding: chunked", body=b"ff\r\n" + b"x" * (MOST + 1)),
    ],
)
def test_an_answer_beyond_the_bound_is_not_read(raw: bytes) -> None:
    with pytest.raises(TooLong):
        read(raw)


def test_a_length_beyond_the_bound_is_believed() -> None:
    with pytest.raises(TooLong):
        reader().feed(said(f"Content-Length: {MOST + 1}"))


@pytest.mark.parametrize("line", ["Content-Length: 99", "Transfer-Encoding: chunked"])
def test_json_of_too_many_values_is_not_read_to_its_end(line: str) -> None:
    json = "Content-Type: application/json; charset=utf-8"
    chunk = b"5\r\n" if "chunked" in line else b""
    for kind, body, is_read in (
        (json, b"[1,2,", False),
        ("Content-Type: image/png", b"[1,2,", True),
        (json, b"[1,23", True),
    ):
        one = AnswerReader(wanting("Content-Type"), MOST, MOST_COMPLAINT, most_values=1)
        if is_read:
            assert one.feed(said(line, kind, body=chunk + body)) is None
        else:
            with pytest.raises(TooManyValues):
                one.feed(said(line, kind, body=chunk + body))


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        (["Content-Length: 20"], b"x" * 20),
        (["Transfer-Encoding: chunked"], b"ff\r\n" + b"x" * 20),
        ([], b"x" * 20),
    ],
)
def test_of_a_long_complaint_only_the_beginning_is_read(lines: list[str], body: bytes) -> None:
    answer, keeps = read(said(*lines, body=body, status="HTTP/1.1 500 Oops"))
    assert answer is not None
    assert (answer.status, answer.body, keeps) == (500, b"x" * MOST_COMPLAINT, False)


def test_different_values_of_a_field_are_told_apart() -> None:
    answer, _ = read(said("ETag: a", "ETag: b", "ETag: b", "Content-Length: 0"))
    assert answer is not None
    assert answer.fields == {b"etag": b"a\nb\nb", b"content-length": b"0"}


def test_a_body_in_tiny_pieces_takes_the_memory_of_its_bytes() -> None:
    reader, piece = AnswerReader(wanting(), 1_000_000, 0), b"2\r\nab\r\n"
    reader.feed(said("Transfer-Encoding: chunked"))
    tracemalloc.start()
    for _ in range(100):
        assert reader.feed(piece * 1_000) is None
    now_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert now_bytes < 400_000
    answer = reader.feed(b"400\r\n%b\r\n0\r\n\r\n" % bytes(1024))
    assert answer is not None
    assert answer.body == b"ab" * 100_000 + bytes(1024)


def test_a_refused_answer_keeps_nothing() -> None:
    """Reader and parser hold each other: ten refused answers kept 640 MB until a collection."""
    reader = AnswerReader(wanting(), 1_000, 1_000)
    gc.disable()
    try:
        body = bytes(900)
        reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n384\r\n" + body)
        with pytest.raises(TooLong):
            reader.feed(b"\r\n384\r\n" + body)
        assert len(gc.get_referrers(reader)) <= 1  # this frame
        assert not reader._body
    finally:
        gc.enable()
