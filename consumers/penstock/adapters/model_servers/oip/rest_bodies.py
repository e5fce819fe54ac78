"""Requests and answers of the Open Inference Protocol over REST, with or without binary tensors.

Rule: binary tensors follow the JSON, with the bytes that they have in memory. Both forms of answers
are read, whichever was asked for. Pure functions; owner: the REST adapter.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import orjson

from penstock.adapters.model_servers.http_calls import Reply, Request
from penstock.adapters.model_servers.oip.columns import Column, Filled
from penstock.adapters.model_servers.oip.outputs import Output, from_list, from_raw, unusable
from penstock.adapters.model_servers.refusals import (
    NOT_FOUND,
    by_status,
    clean,
    complaint,
    excerpt,
    too_large,
)
from penstock.errors import PenstockError, Rejected, Transient

JSON_LENGTH: Final = "Inference-Header-Content-Length"
# Servers without versions answer this to a request that names a version, and all servers answer it
# to an unknown method.
NOT_IMPLEMENTED: Final = 501
# Triton's text, with status 404, while it is still loading the model.
LOADING: Final = "has no available versions"
_RAISED: Final = re.compile(r"^[\w.]*(?:Error|Exception)\b.*$", re.MULTILINE)
_JSON: Final = {"Content-Type": "application/json"}


def as_binary(filled: Filled, identity: str, outputs: Sequence[str]) -> Request:
    tensors = [column.raw() for column in filled.columns]
    inputs = [
        _described(column) | {"parameters": {"binary_data_size": len(raw)}}
        for column, raw in zip(filled.columns, tensors, strict=True)
    ]
    document: dict[str, Any] = {"id": identity, "inputs": inputs}
    document["parameters"] = {"binary_data_output": True}
    if outputs:
        binary = {"binary_data": True}
        document["outputs"] = [{"name": name, "parameters": binary} for name in outputs]
    head = orjson.dumps(document)
    headers = {"Content-Type": "application/octet-stream", JSON_LENGTH: str(len(head))}
    return Request(b"".join([head, *tensors]), headers)


def as_json(filled: Filled, identity: str, outputs: Sequence[str]) -> Request:
    """The request without binary tensors. `fit_for_json` must have left out the rows that JSON
    cannot carry.
    """
    inputs = [_described(column) | {"data": _data(column)} for column in filled.columns]
    document: dict[str, Any] = {"id": identity, "inputs": inputs}
    if outputs:
        document["outputs"] = [{"name": name} for name in outputs]
    return Request(orjson.dumps(document), _JSON)


def read(reply: Reply) -> list[Output]:
    """The outputs of an answer. Raises `Rejected` if the answer is not JSON, `Poison` if its
    outputs cannot be used.
    """
    length = reply.headers.get(JSON_LENGTH)
    is_cut = length is not None and length.isdecimal()
    end = int(length[:12]) if length is not None and is_cut else len(reply.body)
    document = _loaded(reply.body[:end])
    rest, found = memoryview(reply.body)[end:], []
    try:
        for one in document["outputs"]:
            name, datatype, shape = one["name"], one["datatype"], [int(n) for n in one["shape"]]
            name.encode()
            size = (one.get("parameters") or {}).get("binary_data_size")
            if size is None:
                found.append(from_list(name, datatype, shape, one["data"]))
                continue
            if not 0 <= size <= len(rest):
                raise unusable(f"output {name} is cut short")
            found.append(from_raw(name, datatype, shape, rest[:size]))
            rest = rest[size:]
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise unusable(f"{error!r} in {excerpt(reply.body)}") from None
    return found


def refusal(reply: Reply, url: str, sent_bytes: int) -> PenstockError:
    """The error that an answer other than 200 means. 500 counts as an exception of the model: the
    protocol has no other way to report a bad row.
    """
    said = f"{url} answered {reply.status}: {_said(reply.body)}"
    if reply.status == NOT_FOUND and LOADING in said:
        return Transient(said)
    status = NOT_FOUND if reply.status == NOT_IMPLEMENTED else reply.status
    too_big = too_large(url, sent_bytes)
    return by_status(status, reply.headers, said, too_large=too_big, by_model=status == 500)


def _described(column: Column) -> dict[str, Any]:
    tensor = column.tensor
    return {"name": tensor.name, "shape": column.shape, "datatype": tensor.datatype}


def _data(column: Column) -> Any:
    if not isinstance(column.values, np.ndarray):
        return [bytes(text).decode() for text in column.values]
    values = column.values.ravel()
    return orjson.Fragment(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY))


def _loaded(raw: bytes) -> Any:
    """Read JSON, even if it holds NaN or Infinity, which Python's own encoder writes."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):
            raise Rejected("model_rejected", f"the model's answer is not JSON ({error})") from None


def _said(raw: bytes) -> str:
    """The server's error text. If it is a traceback, only the line of the exception is taken,
    because a longer text will be cut.
    """
    try:
        error = orjson.loads(raw)["error"]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return complaint(raw)
    return clean(raised(error)) if isinstance(error, str) else complaint(raw)


def raised(said: str) -> str:
    """The last line that looks like a traceback's exception; if no line does, the whole text."""
    found = _RAISED.findall(said)
    return str(found[-1]) if found else said.strip()
