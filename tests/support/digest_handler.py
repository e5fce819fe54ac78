"""A TorchServe handler that answers each float32 row by the digest of its bytes.

Rule: deployed by tests inside an archive; what it answers can be computed beside it to the bit.
"""

import hashlib
import json
from typing import Any


class DigestHandler:
    """Needs no model."""

    def initialize(self, context: Any) -> None:
        pass

    def handle(self, data: Any, context: Any) -> list[bytes]:
        return [self._answer(request, context, index) for index, request in enumerate(data)]

    def _answer(self, request: Any, context: Any, index: int) -> bytes:
        headers = context.get_all_request_header(index)
        rows = int(next(value for name, value in headers.items() if name.lower() == "x-rows"))
        body = bytes(request["body"])
        width = len(body) // rows if rows else 0
        parts = [body[start : start + width] for start in range(0, rows * width, width or 1)]
        return json.dumps([hashlib.sha256(part).hexdigest() for part in parts]).encode()
