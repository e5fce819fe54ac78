"""A small server with TorchServe's REST interface, for the demo and for tests.

Rule: rows of numbers get the answers of the example model behind a real TorchServe. Frames of the
demo's cameras get a box around the bright thing on them. As a program
(`python -m penstock.tools.embedded.model_server`) the server prints its URL on the first line.
"""

import argparse
import asyncio
import struct
import zlib
from typing import Any, Final, Self

import numpy as np
import orjson
from aiohttp import web

from penstock.core.rows.payload import Float32Matrix
from penstock.process.signals import serve_until_asked
from penstock.tools.handlers import rows_model

HOST: Final = "127.0.0.1"
# TorchServe's own default.
MAX_REQUEST_BYTES: Final = 6_553_500
FEATURES: Final = rows_model.SIZES[0]
VERSION: Final = rows_model.VERSION
# Status, type and message as TorchServe 0.12 sends them; its 413 has no body.
NO_MODEL: Final = (404, "ModelNotFoundException", f"Model not found: {rows_model.NAME}")
TOO_LARGE: Final = (413, "", "")
# The form of the demo's frames: PNGs with three colours and without filters.
PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_PNG_HEAD: Final = struct.Struct(">8s4x4sIIBBBBB4x")
_PNG_CHUNK: Final = struct.Struct(">I4s")
# A frame of the demo has at most this many pixels.
MOST_PIXELS: Final = 256 * 256
# A pixel belongs to the bright thing if each of its colours has at least this value.
LEAST_BRIGHT: Final = 190


class Served:
    """A server for an `async with` block: within the block it listens at `url`. If it is opened
    again, it has the same port.
    """

    most_bytes = 64 << 20

    def __init__(self, port: int = 0, host: str = HOST) -> None:
        self.url = ""
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None

    def add_routes(self, router: web.UrlDispatcher) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=self.most_bytes)
        self.add_routes(app.router)
        # Open requests get little time to end, because nobody reads their answers any more.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        self._port = self._runner.addresses[0][1]
        self.url = f"http://{self._host}:{self._port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()


class EmbeddedModelServer(Served):
    """`batch_rows`: how many rows each answered batch had."""

    most_bytes = MAX_REQUEST_BYTES

    def __init__(self, *, port: int = 0, host: str = HOST) -> None:
        super().__init__(port, host)
        self.batch_rows: list[int] = []
        self._layers = rows_model.layers()

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/predictions/{name}", self._predictions)
        router.add_post("/predictions/{name}/{version}", self._predictions)

    async def _predictions(self, request: web.Request) -> web.StreamResponse:
        asked = request.match_info
        if (asked["name"], asked.get("version", VERSION)) != (rows_model.NAME, VERSION):
            return error_response(*NO_MODEL)
        try:
            document = self._answer(request.content_type, request.headers, await request.read())
        except web.HTTPRequestEntityTooLarge:
            return error_response(*TOO_LARGE)
        except ValueError as error:
            return _json_response(400, {"error": str(error)})
        return web.Response(body=orjson.dumps(document))

    def _answer(self, content_type: str, headers: Any, body: bytes) -> Any:
        """Does the handler's part: makes the document of the answer from the body of a request.
        Raises `ValueError` if the answer must be a 400.
        """
        if content_type == "application/x-bytes-tensor":
            blobs = _blobs(body, int(headers["X-Rows"]))
            self.batch_rows.append(len(blobs))
            return self._predict_blobs(blobs)
        if content_type == "application/octet-stream":
            rows = int(headers.get("X-Rows", "1"))
            matrix = np.frombuffer(body, "<f4").reshape(rows, FEATURES)
            self.batch_rows.append(rows)
            return self._predict(matrix)
        document = orjson.loads(body)
        elements = document["instances"] if isinstance(document, dict) else document
        self.batch_rows.append(len(elements))
        answers = self._predict_elements(elements)
        return {"predictions": answers} if isinstance(document, dict) else answers

    def _predict_blobs(self, blobs: list[bytes]) -> list[dict[str, Any]]:
        """A blob is either the numbers of a row, or a frame of the demo."""
        frames = [seen(blob) if blob.startswith(PNG_SIGNATURE) else None for blob in blobs]
        if all(frames):
            return [frame for frame in frames if frame is not None]
        elements = [
            np.frombuffer(blob, "<f4") if len(blob) == 4 * FEATURES else None for blob in blobs
        ]
        return self._predict_elements(elements)

    def _predict_elements(self, elements: list[Any]) -> list[dict[str, Any]]:
        whole = _numbers(elements, (len(elements), FEATURES))
        if whole is not None:
            return self._predict(whole)
        rows = [_numbers(element, (FEATURES,)) for element in elements]
        good = [row for row in rows if row is not None]
        answers = iter(self._predict(np.stack(good)) if good else ())
        error = {"error": f"a row is an array of {FEATURES} numbers"}
        return [error if row is None else next(answers) for row in rows]

    def _predict(self, matrix: Float32Matrix) -> list[dict[str, Any]]:
        *hidden, (weight, bias) = self._layers
        signal = matrix
        for hidden_weight, hidden_bias in hidden:
            signal = np.maximum(signal @ hidden_weight.T + hidden_bias, 0)
        logits = signal @ weight.T + bias
        chances = np.exp(logits - logits.max(axis=1, keepdims=True))
        scores = chances.max(axis=1) / chances.sum(axis=1)
        pairs = zip(chances.argmax(axis=1).tolist(), scores.tolist(), strict=True)
        answers: list[dict[str, Any]] = [{"label": label, "score": score} for label, score in pairs]
        for row in np.flatnonzero(~np.isfinite(scores)).tolist():
            answers[row] = {"error": "the answer is not a finite number: check the row"}
        return answers


def _blobs(body: bytes, rows: int) -> list[bytes]:
    parts, at = [], 0
    for _ in range(rows):
        length = int.from_bytes(body[at : at + 4], "little")
        parts.append(body[at + 4 : at + 4 + length])
        at += 4 + length
    if at != len(body):
        raise ValueError(f"{rows} rows end at byte {at} of {len(body)}")
    return parts


def _numbers(value: Any, shape: tuple[int, ...]) -> Float32Matrix | None:
    try:
        array = np.asarray(value, np.float32)
    except (TypeError, ValueError):
        return None
    return array if array.shape == shape else None


def seen(blob: bytes) -> dict[str, Any] | None:
    """The answer to a frame of the demo: the bright thing and its box. None: the blob is no such
    frame.
    """
    image = _pixels(blob)
    if image is None:
        return None
    rows, columns = np.nonzero((image >= LEAST_BRIGHT).all(axis=2))
    if not len(rows):
        return {"label": "nothing", "score": 1.0}
    top, left, bottom, right = (
        int(each) for each in (rows.min(), columns.min(), rows.max(), columns.max())
    )
    box = [left, top, right - left + 1, bottom - top + 1]
    return {"label": "vehicle", "score": round(len(rows) / (box[2] * box[3]), 3), "box": box}


def _pixels(blob: bytes) -> "np.ndarray[Any, np.dtype[np.uint8]] | None":
    try:
        _, _, width, height, *kind = _PNG_HEAD.unpack_from(blob)
        size, name = _PNG_CHUNK.unpack_from(blob, _PNG_HEAD.size)
        if kind != [8, 2, 0, 0, 0] or name != b"IDAT" or not 0 < width * height <= MOST_PIXELS:
            return None
        body = blob[_PNG_HEAD.size + _PNG_CHUNK.size :][:size]
        nbytes = height * (1 + 3 * width)
        lines = np.frombuffer(zlib.decompressobj().decompress(body, nbytes), np.uint8)
    except (struct.error, zlib.error):
        return None
    if len(lines) != nbytes:
        return None
    return lines.reshape(height, -1)[:, 1:].reshape(height, width, 3)


def error_response(status: int, kind: str, message: str) -> web.Response:
    if not kind:
        return _closing(web.Response(status=status))
    return _json_response(status, {"code": status, "type": kind, "message": message})


def _json_response(status: int, document: Any) -> web.Response:
    return _closing(web.Response(status=status, body=orjson.dumps(document)))


def _closing(response: web.Response) -> web.Response:
    """Lets the answer close the connection, because TorchServe closes it after every error."""
    response.force_close()
    return response


async def _serve(host: str, port: int) -> None:
    async with EmbeddedModelServer(port=port, host=host) as server:
        await serve_until_asked(server.url)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--host", default=HOST, help="default %(default)s")
    options = parser.parse_args()
    asyncio.run(_serve(options.host, options.port))
