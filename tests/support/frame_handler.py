"""A TorchServe handler for frames, made as docs/models.md says: the shipped one, reading blobs.

Rule: deployed by tests inside an archive, together with the shipped handler. A frame is answered by
its size and mean, and by how many requests the server had gathered; one that Pillow cannot read by
an error.
"""

import io
from typing import Any

from PIL import Image, ImageStat, UnidentifiedImageError
from rows_handler import RowsHandler  # type: ignore[import-not-found]


class FrameHandler(RowsHandler):  # type: ignore[misc]
    """Needs no model of its own."""

    def initialize(self, context: Any) -> None:
        self.gathered = 0

    def handle(self, data: Any, context: Any) -> list[bytes]:
        self.gathered = len(data)
        answers: list[bytes] = super().handle(data, context)
        return answers

    def predict_blobs(self, blobs: list[bytes]) -> list[dict[str, Any]]:
        return [self._frame(blob) for blob in blobs]

    def _frame(self, blob: bytes) -> dict[str, Any]:
        try:
            picture = Image.open(io.BytesIO(blob)).convert("L")
        except (UnidentifiedImageError, OSError) as error:
            return {"error": f"no frame: {error}"}
        mean = ImageStat.Stat(picture).mean[0]
        return {"size": list(picture.size), "mean": mean, "gathered": self.gathered}
