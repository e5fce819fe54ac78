"""Hostile messages. In the store is one object, `b/ok.csv`, of two rows."""

import orjson

from tests.corpus.cases import Message

_BAD = "end:bad_reference"
_OK = "row row"
_GONE = "end:not_found"


def _reference(**fields: object) -> bytes:
    return orjson.dumps({"bucket": "b", "key": "ok.csv"} | fields)


def _record(**s3: object) -> bytes:
    event = {"eventName": "ObjectCreated:Put", "s3": s3}
    return orjson.dumps({"Records": [event]})


def _named(key: str, **fields: object) -> bytes:
    return _record(bucket={"name": "b"}, object={"key": key} | fields)


def _wrapped(times: int) -> bytes:
    text = _named("ok.csv").decode()
    for _ in range(times):
        text = orjson.dumps({"Message": text}).decode()
    return text.encode()


_NOT_JSON = [
    Message("no value at all", None, _BAD),
    Message("an empty value", b"", _BAD),
    Message("white space", b" \n\t", _BAD),
    Message("a word", b"hello", _BAD),
    Message("a NUL", b"\0", _BAD),
    Message("a reference that breaks off", b'{"bucket":"b","key":"ok', _BAD),
    Message("two references behind each other", _reference() * 2, _BAD),
    Message("a reference and a line feed", _reference() + b"\n", _OK),
    Message("a byte order mark", b"\xef\xbb\xbf" + _reference(), _BAD),
    Message("UTF-16", _reference().decode().encode("utf-16"), _BAD),
    Message("a comma too many", b'{"bucket":"b","key":"ok.csv",}', _BAD),
    Message("single quotes", b"{'bucket':'b','key':'ok.csv'}", _BAD),
    Message("a key that is not UTF-8", b'{"bucket":"b","key":"\xff.csv"}', _BAD),
    Message("a lone surrogate in the key", rb'{"bucket":"b","key":"\ud800.csv"}', _BAD),
    Message("a line feed in the key, raw", b'{"bucket":"b","key":"a\nb"}', _BAD),
    Message("NaN for a time", b'{"bucket":"b","key":"ok.csv","event_time":NaN}', _BAD),
    Message("Infinity for a size", b'{"bucket":"b","key":"ok.csv","size":Infinity}', _BAD),
    Message("a number of 5,000 digits", b'{"bucket":"b","key":"k","size":%b}' % (b"9" * 5000),
            _BAD),
    Message("a number that overflows", b'{"bucket":"b","key":"ok.csv","size":1e999}', _BAD),
    Message("100,000 brackets", b"[" * 100_000, _BAD),
    Message("100,000 brackets in a field", b'{"x":%b}' % (b"[" * 100_000), _BAD),
    Message("100,000 levels in a field", b'{"bucket":"b","key":"ok.csv","x":%b%b}'
            % (b"[" * 100_000, b"]" * 100_000), _BAD),
    Message("a megabyte of nothing", b" " * 1_000_000, _BAD),
    Message("random bytes", bytes(range(256)), _BAD),
]  # fmt: skip

_NO_REFERENCE = [
    Message("null", b"null", _BAD),
    Message("true", b"true", _BAD),
    Message("a number", b"17", _BAD),
    Message("a string", b'"s3://b/ok.csv"', _BAD),
    Message("an empty array", b"[]", _BAD),
    Message("an array of references", b"[%b]" % _reference(), _BAD),
    Message("an empty object", b"{}", _BAD),
    Message("only foreign fields", b'{"path":"/etc/passwd"}', _BAD),
    Message("a bucket alone", b'{"bucket":"b"}', _BAD),
    Message("a key alone", b'{"key":"ok.csv"}', _BAD),
    Message("an empty key", _reference(key=""), _BAD),
    Message("an empty bucket", _reference(bucket=""), _BAD),
    Message("a number for a key", _reference(key=1), _BAD),
    Message("an array for a bucket", _reference(bucket=["b"]), _BAD),
    Message("null for a key", _reference(key=None), _BAD),
    Message("the last of two keys counts", b'{"bucket":"b","key":"no","key":"ok.csv"}', _OK),
    Message("a reference and objects", _reference(objects=[]), _BAD),
    Message("a reference and inline rows", _reference(inline=[[1, 2]]), _BAD),
    Message("no objects", b'{"objects":[]}', _BAD),
    Message("objects that are no list", b'{"objects":{"bucket":"b","key":"k"}}', _BAD),
    Message("one bad reference among objects", b'{"objects":[%b,{}]}' % _reference(), _BAD),
    Message("objects in objects", b'{"objects":[{"objects":[%b]}]}' % _reference(), _BAD),
    Message("objects, one of them gone", b'{"objects":[%b,%b,%b]}'
            % (_reference(), _reference(key="no"), _reference()), f"{_OK} {_GONE} {_OK}"),
    Message("2,000 objects that are not there", b'{"objects":[%b]}'
            % b",".join([_reference(key="no")] * 2000), f"{_GONE}*2000"),
]  # fmt: skip

_URLS = [
    Message("a web address", b'{"url":"http://169.254.169.254/latest/meta-data/"}', _BAD),
    Message("a local file", b'{"url":"file:///etc/passwd"}', _BAD),
    Message("a scheme in capitals", b'{"url":"S3://b/ok.csv"}', _OK),
    Message("a url without a bucket", b'{"url":"s3:///etc/passwd"}', _BAD),
    Message("a url without a key", b'{"url":"s3://b"}', _BAD),
    Message("a url with an empty key", b'{"url":"s3://b/"}', _BAD),
    Message("a url beside a key", b'{"url":"s3://b/ok.csv","key":"ok.csv"}', _BAD),
    Message("a url that is a number", b'{"url":7}', _BAD),
    Message("credentials in a url", b'{"url":"s3://u:p@evil/ok.csv"}', _BAD),
    Message("a port in a url is a bucket's name", b'{"url":"s3://b:80/ok.csv"}', _GONE),
    Message("a query is part of the key", b'{"url":"s3://b/ok.csv?endpoint=http://evil"}', _GONE),
    Message("a fragment is part of the key", b'{"url":"s3://b/ok.csv#x"}', _GONE),
    Message("escapes are not decoded", b'{"url":"s3://b/%6fk.csv"}', _GONE),
    Message("a url of bucket and key", b'{"url":"s3://b/ok.csv"}', _OK),
]

_KEYS = [
    Message(f"the key {key[:20]!r}", _reference(key=key), _GONE)
    for key in (
        "..", ".", "/", "//", "../ok.csv", "../b/ok.csv", "x/../ok.csv", "./ok.csv", "/ok.csv",
        "ok.csv/", "ok.csv\0", "\0", "\r\nHost: evil", "\x7f", "\x1b[31m", "a" * 1025, "ü" * 600,
        "..\\ok.csv", "%2e%2e/ok.csv", "~/ok.csv", "$HOME/ok.csv", "`id`", "ok.csv;id",
        "C:\\ok.csv",
        "file:///etc/passwd", "\u202ecsv.ko", "ok.csv ", "*", "[", "{}", "%s%n", "{0.__class__}",
    )
]  # fmt: skip

_FIELDS = [
    Message("a key of 5,000 characters", _reference(key="a" * 5000), _BAD),
    Message("a bucket of 5,000 characters", _reference(bucket="a" * 5000), _BAD),
    Message("a stream of 5,000 characters", _reference(stream="s" * 5000), _BAD),
    Message("control characters in the stream", _reference(stream="\0\r\n\x1b"), _OK),
    Message("an empty stream", _reference(stream=""), _OK),
    Message("a number for a stream", _reference(stream=1), _BAD),
    Message("a lone surrogate in the stream", rb'{"bucket":"b","key":"ok.csv","stream":"\udc00"}',
            _BAD),
    Message("a second request in the etag",
            _reference(etag='"x"\r\n\r\nDELETE /b/ok.csv HTTP/1.1\r\nHost: evil\r\n\r\n"'), _BAD),
    Message("a line feed in the etag", _reference(etag="a\n"), _BAD),
    Message("a NUL in the etag", _reference(etag="a\0b"), _BAD),
    Message("an etag of 100,000 characters", _reference(etag="a" * 100_000), _BAD),
    Message("an etag that is no ASCII", _reference(etag="ü"), _BAD),
    Message("an etag of another version", _reference(etag="other"), "end:changed"),
    Message("an empty etag pins nothing", _reference(etag=""), _OK),
    Message("a line break in the version", _reference(version_id="1\r\nX: y"), _BAD),
    Message("a version of 5,000 characters", _reference(version_id="1" * 5000), _BAD),
    Message("a version that is gone", _reference(version_id="no"), "end:changed"),
    Message("an unknown format", _reference(format="exe"), "end:bad_format"),
    Message("a format of 5,000 characters", _reference(format="x" * 5000), _BAD),
    Message("a module's name as the format", _reference(format="os.system"), "end:bad_format"),
    Message("an unknown compression", _reference(compression="rar"), "end:bad_format"),
    Message("gzip said of plain text", _reference(compression="gzip"), _OK),
    Message("json said of CSV", _reference(format="json"), "end:bad_format"),
    Message("tar said of CSV", _reference(format="tar"), "end:bad_archive"),
    Message("a negative size", _reference(size=-1), _BAD),
    Message("a size beyond 63 bits", _reference(size=1 << 63), _BAD),
    Message("a wrong size", _reference(size=1 << 62), _OK),
    Message("a time in microseconds", _reference(event_time=1795208217412000), _BAD),
    Message("a time in words", _reference(event_time="yesterday"), _BAD),
    Message("a time of 100,000 digits", _reference(event_time="2" * 100_000), _BAD),
    Message("true for a time", _reference(event_time=True), _BAD),
    Message("a fraction for a time", _reference(event_time=1.5), _BAD),
    Message("attributes that are a list", _reference(attributes=[1]), _BAD),
    Message("attributes 33 levels deep", b'{"bucket":"b","key":"ok.csv","attributes":%b%b}'
            % (b'{"a":' * 33, b"1" + b"}" * 33), _BAD),
    Message("attributes 10,000 levels deep", b'{"bucket":"b","key":"ok.csv","attributes":%b%b}'
            % (b'{"a":' * 10_000, b"1" + b"}" * 10_000), _BAD),
    Message("attributes of 100 kB", _reference(attributes={"a": "x" * 100_000}), _BAD),
    Message("attributes named like fields", _reference(attributes={"id": 1, "last": True}), _OK),
    Message("no range", _reference(rows=[]), _BAD),
    Message("half a range", _reference(rows=[[1]]), _BAD),
    Message("three numbers in a range", _reference(rows=[[1, 2, 3]]), _BAD),
    Message("a range that goes back", _reference(rows=[[2, 1]]), _BAD),
    Message("an empty range", _reference(rows=[[1, 1]]), _BAD),
    Message("ranges that overlap", _reference(rows=[[0, 2], [1, 3]]), _BAD),
    Message("a negative row", _reference(rows=[[-1, 1]]), _BAD),
    Message("a fraction of a row", _reference(rows=[[0, 1.5]]), _BAD),
    Message("a row beyond 63 bits", _reference(rows=[[0, 1 << 63]]), _BAD),
    Message("an open range before another", _reference(rows=[[0, None], [5, 6]]), _BAD),
    Message("rows that the object does not have", _reference(rows=[[2, 1 << 62]]), "end"),
    Message("4,096 ranges", _reference(rows=[[2 * i, 2 * i + 1] for i in range(4096)]), "row"),
    Message("4,096 ranges of rows of an object that is gone",
            _reference(key="no", rows=[[10**18 + 2 * i, 10**18 + 2 * i + 1] for i in range(4096)],
                       attributes={"a": "x" * 60_000}), _GONE),
    Message("32,000 ranges",
            _reference(key="no", rows=[[10**7 + 2 * i, 10**7 + 2 * i + 1] for i in range(32_000)]),
            _BAD),
    Message("a time with 900,000 digits behind the second",
            _reference(event_time="2026-11-21T12:00:00." + "1" * 900_000), _BAD),
]  # fmt: skip

_INLINE = [
    Message("inline that is no list", b'{"inline":{"a":1}}', _BAD),
    Message("inline that is null", b'{"inline":null}', _BAD),
    Message("no inline rows", b'{"inline":[]}', "end"),
    Message("inline rows of no numbers", b'{"inline":[null,"x",[],{}]}', "bad_row*4"),
    Message("one bad inline row", b'{"inline":[[1,2],[1],[3,4]]}', "row bad_row row"),
    Message("NaN inline", b'{"inline":[[1,2],[NaN,1]]}', _BAD),
    Message("invalid UTF-8 inline", b'{"inline":[[1,2],["\xff",1]]}', _BAD),
    Message("a lone surrogate inline", rb'{"inline":[[1,2],["\ud800",1]]}', _BAD),
    Message("a number that overflows inline", b'{"inline":[[1,2],[1e999,1]]}', "row bad_row"),
    Message("100,000 levels inline", b'{"inline":[%b%b]}' % (b"[" * 100_000, b"]" * 100_000), _BAD),
    Message("1,000 levels inline", b'{"inline":[[1,2],%b%b]}' % (b"[" * 1000, b"]" * 1000),
            _BAD),
    Message("an inline row of 260,000 numbers", b'{"inline":[[1,2],[%b1]]}' % (b"1," * 260_000),
            "row bad_row"),
    Message("900 kB of inline rows, each bad in its own way", b'{"inline":[%b]}'
            % b",".join(b'["%06d",%d]' % (i, 1 << 40) for i in range(4000)), "bad_row*4000"),
    Message("inline rows under an unreadable Kafka key", b'{"inline":[[1,2]]}', "row", b"\xff\xfe"),
    Message("a reference under a Kafka key of 1 MB", _reference(), _OK, b"k" * 1_000_000),
]  # fmt: skip

_NOTIFICATIONS = [
    Message("no record", b'{"Records":[]}', _BAD),
    Message("records that are no list", b'{"Records":{"s3":{}}}', _BAD),
    Message("a record that is a number", b'{"Records":[1]}', _BAD),
    Message("a record of nothing", b'{"Records":[{}]}', _BAD),
    Message("a record without an object", _record(bucket={"name": "b"}), _BAD),
    Message("a record without a bucket", _record(object={"key": "ok.csv"}), _BAD),
    Message("a record with an empty key", _named(""), _BAD),
    Message("a record with a negative size", _named("ok.csv", size=-1), _BAD),
    Message("a record with a line break in its etag", _named("ok.csv", eTag="a\r\nb"), _BAD),
    Message("a record with a NUL in its version", _named("ok.csv", versionId="\0"), _BAD),
    Message("a record with a broken escape", _named("%zz%"), _GONE),
    Message("a record with an escaped NUL", _named("ok.csv%00"), _GONE),
    Message("a record with an escaped path", _named("..%2Fok.csv"), _GONE),
    Message("a record with escapes that are no UTF-8", _named("%ff%fe"), _BAD),
    Message("a record with an escaped surrogate", _named("%ed%a0%80"), _BAD),
    Message("a record about a removed object",
            _named("ok.csv").replace(b"Created", b"Removed"), ""),
    Message("a good record", _named("ok%2Ecsv"), _OK),
    Message("a record wrapped four times", _wrapped(4), _OK),
    Message("a record wrapped five times", _wrapped(5), _BAD),
    Message("a wrapper around nothing", b'{"Message":""}', _BAD),
    Message("a wrapper around a word", b'{"body":"hello"}', _BAD),
    Message("a wrapper around a number", b'{"Message":1}', _BAD),
    Message("a wrapper around a reference", orjson.dumps({"body": _reference().decode()}), _BAD),
    Message("an event of nothing", b'{"detail-type":"Object Created","detail":{}}', _BAD),
    Message("an event of another kind", b'{"detail-type":"Object Deleted","detail":{}}', ""),
    Message("the test event", b'{"Service":"Amazon S3","Event":"s3:TestEvent"}', ""),
    Message("an unknown event", b'{"Event":"s3:Other"}', _BAD),
]  # fmt: skip

MESSAGES = [*_NOT_JSON, *_NO_REFERENCE, *_URLS, *_KEYS, *_FIELDS, *_INLINE, *_NOTIFICATIONS]
