"""A TorchServe handler for batches of rows: many rows in one request, one answer for each, in
order.

Rule: this file is deployed alone inside a model archive, so it imports nothing of this project, and
works with Python 3.9 and torch 1.13, which serving images still have. The form of a request is told
by its Content-Type, because one float32 body in 128 begins with `{` or `[`. A bad request is
answered by 400, a bad row by an `error`.
"""

from __future__ import annotations  # Python 3.9 cannot evaluate `X | None`

from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import torch

Matrix = npt.NDArray[np.float32]

BYTES_TYPE = "application/x-bytes-tensor"
LENGTH_BYTES = 4
ARROW_TYPE = "application/vnd.apache.arrow.stream"
OPAQUE_TYPE = "application/octet-stream"
MEDIA_KINDS = ("image/", "audio/", "video/")
ACCEPTED = (
    f"application/json, {OPAQUE_TYPE} (with X-Rows for a float32 matrix), {BYTES_TYPE}, "
    f"{ARROW_TYPE}, image/*, audio/*, video/*"
)


class RowsHandler:
    """Classifies rows of numbers. The answer to each row is `{"label": int, "score": float}`."""

    def initialize(self, context: Any) -> None:
        """Load the TorchScript module that the archive's manifest names."""
        # A row costs microseconds, and the server runs several workers in parallel. So more threads
        # would only compete for the cores.
        torch.set_num_threads(1)
        folder = Path(context.system_properties["model_dir"])
        self.model = torch.jit.load(str(folder / context.manifest["model"]["serializedFile"]))
        self.model.eval()
        self.features = int(next(self.model.parameters()).shape[1])

    def handle(self, data: Sequence[Mapping[str, Any]], context: Any) -> list[bytes]:
        """One answer for each request that the server has put into its batch."""
        return [self._answer(request, context, index) for index, request in enumerate(data)]

    def _answer(self, request: Mapping[str, Any], context: Any, index: int) -> bytes:
        # TorchServe hands over header names as the client wrote them, in upper or lower case.
        headers = {
            name.lower(): value for name, value in context.get_all_request_header(index).items()
        }
        content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            if content_type == "application/json":
                return self._answer_json(request.get("body"))
            blobs = self._blobs(content_type, headers, request.get("body"))
            if blobs is not None:
                return orjson.dumps(self.predict_blobs(blobs))
            matrix = self._matrix(content_type, headers, request.get("body"))
        except ValueError as error:
            context.set_response_status(400, "Bad Request", index)
            return orjson.dumps({"error": str(error)})
        return orjson.dumps(self._predict(matrix))

    def _answer_json(self, body: Any) -> bytes:
        # With decode_input_request=true TorchServe has parsed the body already.
        document = body if isinstance(body, (dict, list)) else _parse_json(_bytes(body))
        if isinstance(document, dict):
            if not isinstance(document.get("instances"), list):
                raise ValueError(
                    'a JSON object needs "instances": an array with one element per row'
                )
            rows = document["instances"]
            blobs = _from_base64(rows)
            answers = self._predict_json(rows) if blobs is None else self.predict_blobs(blobs)
            return orjson.dumps({"predictions": answers})
        if not isinstance(document, list):
            raise ValueError("JSON must be an array with one element per row")
        return orjson.dumps(self._predict_json(document))

    def predict_blobs(self, blobs: list[bytes]) -> list[dict[str, Any]]:
        """Returns an answer for each opaque row. For this model an opaque row is the bytes of the
        row's numbers. Override this for frames, clips or documents, and answer by an `error` if
        such a row cannot be read.
        """
        good = [len(blob) == self.features * 4 for blob in blobs]
        kept = b"".join(blob for blob, fits in zip(blobs, good) if fits)
        answers = iter(self._predict(np.frombuffer(kept, "<f4").reshape(-1, self.features)))
        error = {"error": f"a row is {self.features} float32, {self.features * 4} bytes"}
        return [next(answers) if fits else error for fits in good]

    def _blobs(
        self, content_type: str, headers: Mapping[str, str], body: Any
    ) -> list[bytes] | None:
        """The opaque rows of a request; None: its rows are not opaque."""
        if content_type == BYTES_TYPE:
            return _split(_bytes(body), headers.get("x-rows", ""))
        is_matrix = content_type == OPAQUE_TYPE and "x-rows" in headers
        if content_type.startswith(MEDIA_KINDS) or (content_type == OPAQUE_TYPE and not is_matrix):
            return [_bytes(body)]
        return None

    def _matrix(self, content_type: str, headers: Mapping[str, str], body: Any) -> Matrix:
        if content_type == OPAQUE_TYPE and "x-rows" in headers:
            return self._float32(_bytes(body), headers["x-rows"])
        if content_type == ARROW_TYPE:
            return self._arrow(_bytes(body))
        raise ValueError(f"Content-Type {content_type or '(none)'} is not one of {ACCEPTED}")

    def _float32(self, body: bytes, announced: str) -> Matrix:
        if not announced.isdecimal():
            raise ValueError(f"X-Rows is {announced!r}, not a number of rows")
        rows = int(announced)
        expected = rows * self.features * 4
        if len(body) != expected:
            raise ValueError(
                f"{rows} rows of {self.features} float32 are {expected} bytes, not {len(body)}"
            )
        return np.frombuffer(body, dtype="<f4").reshape(rows, self.features)

    def _arrow(self, body: bytes) -> Matrix:
        # Only deployments that get Arrow need the library.
        import pyarrow as pa  # noqa: PLC0415

        try:
            table = pa.ipc.open_stream(body).read_all()
            columns = [column.cast(pa.float32()).to_numpy() for column in table.columns]
        except pa.ArrowInvalid as error:
            raise ValueError(f"not an Arrow IPC stream of numbers: {error}") from error
        except pa.ArrowNotImplementedError as error:
            raise ValueError(f"an Arrow column is not of numbers: {error}") from error
        if len(columns) != self.features:
            raise ValueError(f"a row has {self.features} columns, the Arrow stream {len(columns)}")
        return np.column_stack(columns)

    def _predict_json(self, rows: list[Any]) -> list[dict[str, Any]]:
        matrix = _numbers(rows)
        if matrix is not None and matrix.shape[1:] == (self.features,):
            return self._predict(matrix)
        # Some rows are not rows of numbers. Find out which, so that the other rows are answered.
        parsed = [_numbers(row) for row in rows]
        good = [row is not None and row.shape == (self.features,) for row in parsed]
        kept = [row for row, fits in zip(parsed, good) if fits and row is not None]
        answers = iter(self._predict(np.stack(kept)) if kept else [])
        error = {"error": f"a row is an array of {self.features} numbers"}
        return [next(answers) if fits else error for fits in good]

    def _predict(self, matrix: Matrix) -> list[dict[str, Any]]:
        # A copy, because torch wants memory that it could write to.
        with torch.no_grad():
            chances = torch.softmax(self.model(torch.from_numpy(matrix.copy())), dim=1)
            scores, labels = chances.max(dim=1)
        pairs = zip(labels.tolist(), scores.tolist())
        answers: list[dict[str, Any]] = [{"label": label, "score": score} for label, score in pairs]
        for row in torch.nonzero(~torch.isfinite(scores)).flatten().tolist():
            answers[row] = {
                "error": "the answer is not a finite number: check the row for NaN or infinity"
            }
        return answers


def _bytes(body: Any) -> bytes:
    if body is None:
        raise ValueError("the request has no body")
    return bytes(body) if isinstance(body, (bytes, bytearray)) else str(body).encode()


def _split(body: bytes, announced: str) -> list[bytes]:
    """Divide a body in which each row's length stands before the row."""
    rows, at = [], 0
    while at + LENGTH_BYTES <= len(body):
        end = at + LENGTH_BYTES + int.from_bytes(body[at : at + LENGTH_BYTES], "little")
        rows.append(body[at + LENGTH_BYTES : end])
        at = end
    if at != len(body) or announced != str(len(rows)):
        raise ValueError(f"{len(body)} bytes are not {announced or 'a number of'} rows (X-Rows)")
    return rows


def _from_base64(rows: list[Any]) -> list[bytes] | None:
    """The opaque rows in elements like {"b64": "..."}; None: the rows are not opaque."""
    texts = [row["b64"] for row in rows if isinstance(row, dict) and row.keys() == {"b64"}]
    if not texts or len(texts) < len(rows) or not all(isinstance(text, str) for text in texts):
        return None
    return [b64decode(text, validate=True) for text in texts]


def _parse_json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"the body is not JSON: {error}") from error


def _numbers(value: Any) -> Matrix | None:
    """The value as float32; None if an element of it is not a number."""
    try:
        array = np.asarray(value)
    except ValueError:  # rows of unequal length
        return None
    return array.astype(np.float32) if array.dtype.kind in "iuf" else None
