"""The text of a first configuration file, made from four answers.

Rule: a worker can run with it as it is. Each line says why a user would change it; a key that no
answer sets is a comment.
"""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple, get_args
from urllib.parse import urlsplit

from penstock.config.model_sections import (
    MODEL_PATHS,
    Preset,
    Protocol,
    name_and_version,
    path_before_name,
)
from penstock.config.secrets import shown_url
from penstock.errors import Fatal, usage

PRESETS: Final = get_args(Preset)
# The protocols and presets whose servers have addresses of the form `URL/NAME`.
_NAMED: Final = ("torchserve", "oip", "oip-grpc", "tf-serving", "bentoml", "ray-serve")
PROTOCOLS: Final = (*get_args(Protocol), *PRESETS)
_GRPC: Final = ("grpc", "grpcs")
# Rows of these formats are opaque bytes.
_OPAQUE: Final = ("image", "video", "audio", "text", "bytes")
# What cameras write, and the format that reads it. `auto` knows both by extension and first bytes.
_OF_CAMERAS: Final = {"pictures": "image", "films": "video", "both": "auto"}
_NOT_AWS: Final = '# endpoint_url = "http://minio:9000"  # of a server that is not AWS\n'
_VERSION: Final = '# version = "1.0"                  # else the default one\n'
_STORES: Final = {
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "abfs": "az",
    "abfss": "az",
    "file": "folder",
}


class StarterAnswers(NamedTuple):
    """The user's answers, as texts of these forms. `kafka`: SERVERS/TOPIC. `store`: s3://BUCKET,
    gs://, az://, file:///FOLDER, or http://HOST:PORT/BUCKET for an S3 server. `model`: URL
    [PROTOCOL]. `rows`: FORMAT [REQUEST], or of cameras `pictures`, `films` or `both`, and REQUEST.
    """

    kafka: str = "localhost:9092/refs"
    store: str = "http://localhost:9000/sensors"
    model: str = "http://localhost:8080/predictions/rows"
    rows: str = "auto json"


def starter(answers: StarterAnswers) -> str:
    """The text of the configuration file. Raises `Fatal` (exit 2) for an answer that cannot be
    read.
    """
    format, request = _rows(answers.rows)
    model = {**_model(answers.model), "request": request}
    if model["protocol"] == "openai-chat":
        # One row a call, as it is, and a question about it.
        model |= {"request": "raw", "prompt": "What is on this picture? Answer in one word."}
    parts = [
        "# Made by `penstock config --init`. Lines in comments are defaults, or examples.",
        "# Next: penstock lint, doctor, and run --dry-run 5, each with --config FILE.",
        *("", _kafka(answers.kafka), "", _store(answers.store), "", _rows_section(format)),
        *("", _model_section(model), "", _REST),
    ]
    return "\n".join(parts)


def _kafka(answer: str) -> str:
    servers, separator, topic = answer.rpartition("/")
    if not separator or not topic or ":" not in servers:
        raise _wrong("Kafka", answer, "SERVER:PORT[,SERVER:PORT...]/TOPIC", StarterAnswers().kafka)
    return f"""\
[kafka]
bootstrap_servers = {_text(servers)}
input_topic = {_text(topic)}                # the references; answers go to [output].topic
# group = "penstock"                # workers of one group share the partitions
# stream_from = "^(?P<stream>[^/]+/[^/]+)/"  # the stream of an object by its key; else its folder
# time_from = "(?P<time>[0-9]{{4}}[0-9TZ:_.+-]+)[.][a-z0-9]+$"  # of capture, in the key
# rekey = {_text(f"{topic}-by-stream")}  # if a bucket announces its objects: answers in order
# security_protocol = "PLAINTEXT"   # or SSL, SASL_SSL, with the sasl_ and ssl_ keys"""


def _store(answer: str) -> str:
    parts = urlsplit(answer)
    bucket = (parts.netloc if parts.scheme == "s3" else parts.path.strip("/")).split("/")[0]
    if parts.scheme == "file" and parts.path.strip("/"):
        return f"[objects]\nendpoint_url = {_text(answer)}   # its folders are the buckets"
    if parts.scheme in ("http", "https") and parts.netloc and bucket:
        endpoint = f"endpoint_url = {_text(f'{parts.scheme}://{parts.netloc}')}\n"
        return _objects(endpoint, bucket)
    if parts.scheme == "s3" and bucket:
        return _objects(_NOT_AWS, bucket)
    name = _STORES.get(parts.scheme)
    if name is None or not (parts.netloc or parts.path.strip("/")):
        message = (
            "s3://BUCKET, http://HOST:PORT/BUCKET, gs://BUCKET, az://CONTAINER or file:///FOLDER"
        )
        raise _wrong("objects", answer, message, StarterAnswers().store)
    return f"""\
[stores.{name}]
url = {_text(answer)}
# most_concurrency = 256            # the most objects fetched at a time; the best is learned"""


def _objects(endpoint: str, bucket: str) -> str:
    return f"""\
[objects]
{endpoint}allow = [{_text(f"{bucket}/")}]        # a message can make us read nothing else
# region = "us-east-1"
# key and secret: better as PENSTOCK_OBJECTS__KEY and PENSTOCK_OBJECTS__SECRET, or AWS's own ways
# most_concurrency = 256            # the most objects fetched at a time; the best is learned"""


def _rows(answer: str) -> tuple[str, str]:
    words = answer.split()
    if not 1 <= len(words) <= 2:
        raise _wrong("rows", answer, "FORMAT [REQUEST]", StarterAnswers().rows)
    what, *request = words
    is_opaque = what in _OPAQUE or what in _OF_CAMERAS
    request = request or ["bytes" if is_opaque else "json"]
    return _OF_CAMERAS.get(what, what), request[0]


def _rows_section(format: str) -> str:
    return f"""\
[rows]
format = {_text(format)}                     # auto: by extension and first bytes
# fps = 2.0                         # of a film, only so many frames a second; films: extra media
# columns = [0, "speed"]            # only these, by number or name
# keep = ["sensor_id"]              # copied to the answer
# time = "ts"                       # the column that is the row's event_time"""


def _model(answer: str) -> dict[str, str]:
    """The keys of `[model]` that follow from the answer, which is a URL and perhaps a protocol."""
    url, _, protocol = answer.strip().partition(" ")
    protocol, parts = protocol.strip(), urlsplit(url)
    if parts.scheme not in ("http", "https", *_GRPC) or not parts.netloc:
        raise _wrong("model", answer, "URL [PROTOCOL]", StarterAnswers().model)
    if parts.scheme in _GRPC:
        if protocol not in ("", "oip-grpc"):
            raise _wrong("model", answer, "grpc://HOST:PORT/NAME", "grpc://localhost:8001/rows")
        protocol = "oip-grpc"
    if protocol and protocol not in PROTOCOLS:
        raise _wrong(
            "model", answer, f"URL and one of {', '.join(PROTOCOLS)}", StarterAnswers().model
        )
    root = f"{parts.scheme}://{parts.netloc}"
    for server, read in MODEL_PATHS.items():
        address = read(parts.path)
        is_meant = not protocol or protocol.removesuffix("-grpc") == server
        if address and (is_meant or server not in ("torchserve", "oip")):
            names = {key: value for key, value in name_and_version(address).items() if value}
            return {
                **_protocol(protocol or server),
                "url": root + path_before_name(address),
                **names,
            }
    if not protocol:
        path = {"path": parts.path} if parts.path.strip("/") else {}
        return {"protocol": "http", "url": root, **path}
    if protocol in _NAMED and (name := parts.path.strip("/")):
        return {**_protocol(protocol), "url": root, "name": name}
    return {**_protocol(protocol), "url": url}


def _protocol(protocol: str) -> dict[str, str]:
    if protocol in PRESETS:
        return {"protocol": "http", "preset": protocol}
    return {"protocol": protocol}


def _model_section(keys: Mapping[str, str]) -> str:
    set_keys = "\n".join(f"{key} = {_text(value)}" for key, value in keys.items())
    version = "" if "version" in keys else _VERSION
    return f"""\
[model]
{set_keys}
# request: how rows are sent. float32 is the fastest for numbers, bytes is for images
{version}# timeout_ms = 30000
# max_in_flight = 16                # calls at a time; without this the best number is learned
# canary = "[0.0, 0.0]"             # a row that the model answers when it is well"""


_REST: Final = """\
[window]
# target_p99_ms = 50                # latency to aim for: wait and size of batches are learned
# max_rows = 512                    # rows in one call

[output]
# topic = "predictions"             # dead letters go to "predictions.dlq"
# order = "partition"               # or "stream": a slow object holds back its own stream alone

[delivery]
# guarantee = "at_least_once"       # or "exactly_once"

[http]
# port = 8900                       # the page, /metrics, /healthz, /readyz
"""


def _text(value: str) -> str:
    """The text as a string of TOML."""
    return json.dumps(value, ensure_ascii=False)


def _wrong(what: str, answer: str, form: str, example: str) -> Fatal:
    return usage(f"{what}: {shown_url(answer)!r} is not of the form {form}; for example {example}")
