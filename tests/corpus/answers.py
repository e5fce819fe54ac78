"""Hostile answers of a model server. Two rows are hostile, in one batch with good ones.

What is said of a batch as a whole ends with the hostile rows alone, as the batch is cut in halves;
what is said three times and then no more is an illness: nobody is blamed.
"""

from collections.abc import Callable

from tests.corpus.cases import Said
from tests.corpus.model_server import answer

MIB = 1 << 20
_BAD = "model_rejected*2"
_COUNT = "model_mismatch*2"
_OK = "row row"
_SICK = 3


def _whole(body: bytes, status: int = 200, more: bytes = b"") -> Callable[[list[bool]], bytes]:
    return lambda _: answer(body, status, more)


def _each(element: bytes) -> Callable[[list[bool]], bytes]:
    """For hostile rows this element, for the others a good one."""
    return lambda hostile: answer(
        b"[%b]" % b",".join(element if is_hostile else b"1" for is_hostile in hostile)
    )


def _framed(before: bytes, after: bytes, fewer: int = 0) -> Callable[[list[bool]], bytes]:
    return lambda hostile: answer(before + b",".join([b"1"] * (len(hostile) - fewer)) + after)


def _raw(data: bytes) -> Callable[[list[bool]], bytes]:
    return lambda _: data


def _says(kind: str, message: str, code: int) -> bytes:
    return b'{"code":%d,"type":"%b","message":"%b"}' % (code, kind.encode(), message.encode())


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

_NO_JSON = [
    Said("nothing", _whole(b""), _BAD),
    Said("a word", _whole(b"hello"), _BAD),
    Said("HTML", _whole(b"<html>"), _BAD),
    Said("an array that breaks off", _whole(b"[1,"), _BAD),
    Said("a byte order mark", _framed(b"\xef\xbb\xbf[", b"]"), _OK),
    Said("UTF-16", _whole(str([1] * 50).encode("utf-16")), _COUNT),
    Said("invalid UTF-8", _each(b'"\xff"'), _BAD),
    Said("bytes that are none of text", _whole(bytes(range(256))), _BAD),
    Said("two arrays", _framed(b"[1][", b"]"), _BAD),
    Said("something behind the array", _framed(b"[", b"]x"), _BAD),
    Said("200,000 brackets", _whole(b"[" * 200_000), _BAD),
    Said("200,000 levels", _whole(b"[" * 200_000 + b"]" * 200_000), _BAD),
    Said("single quotes", _whole(b"['a','a']"), _BAD),
    Said("a raw line feed in a string", _each(b'"a\nb"'), _BAD),
]

_COUNTS = [
    Said("an empty array", _whole(b"[]"), _COUNT),
    Said("an empty object", _whole(b"{}"), _COUNT),
    Said("null", _whole(b"null"), _COUNT),
    Said("a number", _whole(b"1"), _COUNT),
    Said("a string", _whole(b'"1,1"'), _COUNT),
    Said("an answer too few", _framed(b"[", b"]", fewer=1), _COUNT),
    Said("an answer too many", _framed(b"[1,", b"]"), _COUNT),
    Said("a million answers", _whole(b"[%b1]" % (b"1," * 1_000_000)), _COUNT),
    Said("predictions that are null", _whole(b'{"predictions":null}'), _COUNT),
    Said("predictions that are an object", _whole(b'{"predictions":{"0":1,"1":1}}'), _COUNT),
    Said("predictions too many", _framed(b'{"predictions":[1,', b"]}"), _COUNT),
    Said("predictions in predictions", _framed(b'{"predictions":{"predictions":[', b"]}}"), _COUNT),
    Said("predictions beside other fields", _framed(b'{"predictions":[', b'],"x":[[],{}]}'), _OK),
    Said("predictions twice", _framed(b'{"predictions":[1,2,3],"predictions":[', b"]}"), _OK),
    Said("an array of all answers in an array", _framed(b"[[", b"],1,1,1,1,1,1,1,1,1]"), _COUNT),
]

_ELEMENTS = [
    Said("NaN", _each(b"NaN"), _BAD),
    Said("Infinity", _each(b'{"score":-Infinity}'), _BAD),
    Said("a number that overflows", _each(b"1e999"), _BAD),
    Said("an integer of 5,000 digits", _each(b"9" * 5000), _BAD),
    Said("an integer beyond 64 bits", _each(b"123456789012345678901234567890"), _OK),
    Said("null for an answer", _each(b"null"), _BAD),
    Said("an error", _each(b'{"error":"no"}'), _BAD),
    Said("an error that is an object", _each(b'{"error":{"code":1}}'), _BAD),
    Said("an error that is null", _each(b'{"error":null}'), _BAD),
    Said("an error of 500 kB", _each(b'{"error":"%b"}' % (b"x" * 500_000)), _BAD),
    Said("an error of control characters", _each(rb'{"error":"\u0000\u001b[2J\r\n"}'), _BAD),
    Said("an error beside an answer", _each(b'{"label":1,"error":"no"}'), _BAD),
    Said("an error whose name is escaped", _each(rb'{"\u0065rror":"no"}'), _BAD),
    Said("a lone surrogate", _each(rb'"\ud800"'), _BAD),
    Said("200 levels", _each(b"[" * 200 + b"]" * 200), _OK),
    Said("300 levels", _each(b"[" * 300 + b"]" * 300), _BAD),
    Said("1,000 levels", _each(b'{"a":' * 1000 + b"1" + b"}" * 1000), _BAD),
    Said("text that looks like the end of an answer", _each(b'"},{"'), _OK),
    Said("objects that look like two", _each(b'{"a":"},{","b":"],["}'), _OK),
    Said("arrays that look like two", _each(b'["],[",[],["a"]]'), _OK),
    Said("commas in a string", _each(b'",,,,"'), _OK),
    Said("a field twice", _each(b'{"a":1,"a":2}'), _OK),
    Said("fields of a record", _each(b'{"v":9,"id":"x","last":true}'), _OK),
    Said("percent signs", _each(b'"%d%s%n%b"'), _OK),
    Said("an escaped NUL", _each(rb'"\u0000"'), _OK),
    Said("an answer of 2 MB", _each(b'"%b"' % (b"x" * 2_000_000)), "result_too_large*2"),
    Said("an answer of 100 MiB", lambda _: answer(b" " * (100 * MIB)), "result_too_large*2"),
]

_STATUSES = [
    Said("400 and nothing", _whole(b"", 400), _BAD),
    Said("400 and nonsense", _whole(b'{"type":[],"message":{}}', 400), _BAD),
    Said("400 and 20 MiB", lambda _: answer(b"x" * (20 * MIB), 400), _BAD),
    Said("400 and 900 levels", _whole(b'{"message":%b1%b}' % (b"[" * 900, b"]" * 900), 400), _BAD),
    Said("418", _whole(b"teapot", 418), _BAD),
    Said("413", _whole(b"", 413), "too_large*2"),
    Said("500 by the handler", _whole(_says("InternalServerException", "no", 500), 500), _BAD),
    Said("503 by the handler", _whole(_says("InternalServerException", "no", 503), 503), _BAD),
    Said("500 and nothing", _whole(b"", 500), _OK, times=_SICK),
    Said("502 of a proxy", _whole(b"<html>bad gateway</html>", 502), _OK, times=_SICK),
    Said("503 and nonsense", _whole(b"\xff\xfe", 503), _OK, times=_SICK),
    Said("429 with a wish that is none", _whole(b"", 429, b"Retry-After: -1e9\r\n"), _OK,
         times=_SICK),
    Said("503 with a wish of other digits",
         _whole(b"", 503, b"Retry-After: 0x1\r\n"), _OK, times=_SICK),
    Said("a dead worker", _whole(_says("InternalServerException", "Worker died.", 500), 500), _OK,
         times=1),
]  # fmt: skip

_BROKEN = [
    Said("no answer at all", _raw(b""), _OK, times=_SICK, closes=True),
    Said("no HTTP", _raw(b"SSH-2.0-OpenSSH_9.6\r\n"), _OK, times=_SICK, closes=True),
    Said("a status that is none", _raw(b"HTTP/1.1 abc\r\n\r\n"), _OK, times=_SICK, closes=True),
    Said("a head without an end", _raw(_HEAD + b"X: " + b"a" * 100_000), _OK, times=_SICK,
         closes=True),
    Said("100,000 header lines", _raw(_HEAD + b"X: y\r\n" * 100_000 + b"\r\n"), _OK, times=_SICK,
         closes=True),
    Said("a length that is none", _raw(_HEAD + b"Content-Length: x\r\n\r\n[1]"), _OK, times=_SICK,
         closes=True),
    Said("a length of 5,000 digits",
         _raw(_HEAD + b"Content-Length: %b\r\n\r\n[1]" % (b"9" * 5000)), _OK, times=_SICK,
         closes=True),
    Said("a length longer than the body", _raw(_HEAD + b"Content-Length: 99\r\n\r\n[1]"), _OK,
         times=_SICK, closes=True),
    Said("two lengths", _raw(_HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n[1] "), _OK,
         times=_SICK, closes=True),
    Said("a chunk that is none", _raw(_HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n"), _OK,
         times=_SICK, closes=True),
    Said("a chunk that breaks off", _raw(_HEAD + b"Transfer-Encoding: chunked\r\n\r\nff\r\n[1"),
         _OK, times=_SICK, closes=True),
    Said("gzip that breaks off", _whole(b"\x1f\x8b\x08\0", more=b"Content-Encoding: gzip\r\n"),
         _OK, times=_SICK),
    Said("an answer that drips", _raw(_HEAD + b"Content-Length: 99999\r\n\r\n["), _OK, times=1,
         drips=True),
    Said("a head that drips", _raw(b"HTTP/1.1 200 "), _OK, times=1, drips=True),
]  # fmt: skip

ANSWERS = [*_NO_JSON, *_COUNTS, *_ELEMENTS, *_STATUSES, *_BROKEN]
