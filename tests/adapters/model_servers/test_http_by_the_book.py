"""Answers that HTTP allows and few servers give: other 2xx, packed bodies, redirects, charsets."""

import asyncio
import bz2
import gzip
import struct
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from penstock import config
from penstock.adapters.http.answer_reader import Answer as AnswerOfHttp
from penstock.adapters.model_servers.http_calls import JSON_LENGTH, MOST_ANSWER_BYTES, reply_of
from penstock.adapters.model_servers.json_model import JsonModel
from penstock.core.rows.payload import JsonRows
from penstock.errors import EXIT_USAGE, Fatal, HungUp, Poison, Rejected, Transient
from penstock.ports import Answers

ROWS = JsonRows.of([b"[1]", b"[2]"])
ANSWER = b'[{"y":1},{"y":"K\xc3\xb6ln"}]'
VALUES = [b'{"y":1}', b'{"y":"K\xc3\xb6ln"}']


def said(body: bytes, *lines: str, status: str = "200 OK", version: str = "1.1") -> bytes:
    head = "\r\n".join([f"HTTP/{version} {status}", *lines, f"Content-Length: {len(body)}"])
    return f"{head}\r\n\r\n".encode() + body


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[tuple[JsonModel, list[bytes]]]:
    """A model whose server gives these answers, one a connection, and the requests it got."""
    left, requests = list(answers), list[bytes]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"[[1],[2]]"))
        writer.write(left.pop(0))
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://user:secret@127.0.0.1:{listening.sockets[0].getsockname()[1]}/m"
    model = JsonModel(msgspec.convert({"url": url}, config.Model))
    try:
        yield model, requests
    finally:
        await model.aclose()
        listening.close()


async def ask(answer: bytes) -> Answers:
    async with answering(answer) as (model, _):
        return await model.predict([ROWS])


def deflated(body: bytes) -> bytes:
    """Without the head of zlib, as some servers send it."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize(
    "answer",
    [
        *(said(ANSWER, status=f"{status} X") for status in (200, 201, 202, 203, 206, 207, 226)),
        said(b"\xef\xbb\xbf" + ANSWER),
        said(ANSWER, "Content-Type: application/json; charset=UTF-8"),
        said(ANSWER.decode().encode("latin-1"), 'Content-Type: text/json;charset="ISO-8859-1"'),
        said(ANSWER.decode().encode("utf-16"), "Content-Type: application/json; charset=utf-16"),
        said(ANSWER, "Content-Type: application/json; charset=none-such"),
        said(ANSWER, "Content-Encoding: identity"),
        said(gzip.compress(ANSWER), "Content-Encoding: gzip"),
        said(gzip.compress(ANSWER[:9]) + gzip.compress(ANSWER[9:]), "Content-Encoding: X-GZip"),
        said(zlib.compress(ANSWER), "Content-Encoding: deflate"),
        said(deflated(ANSWER), "Content-Encoding: deflate"),
        said(ANSWER, version="1.0"),
        b"HTTP/1.0 200 OK\r\n\r\n" + ANSWER,
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
        + said(ANSWER),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n"
        b"%x;ext=1\r\n%b\r\n0\r\nX: 1\r\n\r\n" % (len(ANSWER), ANSWER),
    ],
)
async def test_a_right_answer_is_read_in_each_form_that_http_has(answer: bytes) -> None:
    assert [bytes(value) for value in (await ask(answer)).values] == VALUES


@pytest.mark.parametrize("codec", ["bz2", "zlib", "hex", "punycode", "idna"])
def test_a_codec_that_is_no_charset_is_not_asked(codec: str) -> None:
    """A body of 46 bytes would become 10 MB of text, and one of 32,000 takes half a second."""
    body = bz2.compress(bytes(10 << 20)) if codec == "bz2" else b"a-" + b"bcdefgh9" * 100
    kind = f"application/json; charset={codec}".encode()
    tracemalloc.start()
    reply = reply_of(AnswerOfHttp(200, {b"content-type": kind}, body))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reply.body is body
    assert peak_bytes < 1 << 20


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (b"application/octet-stream", {}),
        (b"Application/Octet-Stream", {}),
        (b"application/json", {JSON_LENGTH.lower().encode(): b"2"}),
    ],
)
def test_bytes_that_are_no_text_are_not_translated(kind: bytes, fields: dict[bytes, bytes]) -> None:
    body = b"{}" + struct.pack("<2f", 0.1, -2.5)
    fields |= {b"content-type": kind + b"; charset=ISO-8859-1"}
    assert reply_of(AnswerOfHttp(200, fields, body)).body is body


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "gzip, br"])
async def test_a_packed_answer_that_cannot_be_unpacked_is_told_as_a_setting(coding: str) -> None:
    with pytest.raises(Fatal, match=f"Content-Encoding: {coding}.*switch that off") as caught:
        await ask(said(b"\x8b\x00\x80[]\x03", f"Content-Encoding: {coding}"))
    assert caught.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize("packed", [b"no gzip", gzip.compress(ANSWER, mtime=0)[:-9]])
async def test_a_packed_answer_that_is_damaged_is_no_answer(packed: bytes) -> None:
    with pytest.raises(HungUp, match="gzip"):
        await ask(said(packed, "Content-Encoding: gzip"))


async def test_a_packed_answer_may_unfold_to_the_bound_of_answers_and_no_further() -> None:
    bomb = gzip.compress(bytes(MOST_ANSWER_BYTES + 1), 1)
    with pytest.raises(Poison) as caught:
        await ask(said(bomb, "Content-Encoding: gzip"))
    assert caught.value.code == "result_too_large"


@pytest.mark.parametrize("coding", ["gzip", "br"])
async def test_a_packed_refusal_is_a_refusal_with_its_words_if_they_can_be_read(
    coding: str,
) -> None:
    packed = gzip.compress(b'{"detail":"wrong shape"}')
    with pytest.raises(Rejected, match="wrong shape" if coding == "gzip" else "packed as br"):
        await ask(said(packed, f"Content-Encoding: {coding}", status="422 X"))


async def test_requests_allow_no_packed_answer() -> None:
    async with answering(said(ANSWER)) as (model, requests):
        await model.predict([ROWS])
    assert b"\r\nAccept-Encoding: identity\r\n" in requests[0]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/m/", r"http://user:\*+@127\.0\.0\.1:\d+/m/"),
        ("https://model.example/m?token=secret", r"https://model\.example/m\?\S+"),
    ],
)
async def test_a_redirect_names_its_target_without_secrets(
    status: int, location: str, target: str
) -> None:
    with pytest.raises(Fatal, match=f"redirects to {target}, .*set model.url") as caught:
        await ask(said(b"", f"Location: {location}", status=f"{status} X"))
    assert caught.value.exit_code == EXIT_USAGE
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("status", [202, 204, 205, 304])
async def test_a_status_without_answers_is_about_the_address(status: int) -> None:
    with pytest.raises(Fatal, match=r"check model\.url"):
        await ask(said(b"", status=f"{status} X"))


async def test_a_wish_to_wait_is_heard_with_each_status_of_a_busy_or_failing_server() -> None:
    for status in (408, 420, 425, 429, 499, 502, 503, 504, 522, 529):
        with pytest.raises(Transient) as caught:
            await ask(said(b"", "Retry-After: 1.5", status=f"{status} X"))
        assert caught.value.retry_after_s == 1.5
