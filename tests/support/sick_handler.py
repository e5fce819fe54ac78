"""A TorchServe handler that falls ill on purpose: deployed by tests, alone inside an archive.

Rule: a row whose first number is `RAISES` makes it raise, one with `KILLS` ends its process; all
others are answered by their first number. A model with `slow` in its name takes 5 ms a call.
"""

import json
import os
import signal
import time
from typing import Any

import numpy as np

RAISES = -666.0
KILLS = -667.0


class SickHandler:
    """Takes requests of the form float32."""

    def initialize(self, context: Any) -> None:
        self.pause_s = 0.005 if "slow" in context.model_name else 0.0

    def handle(self, data: Any, context: Any) -> list[bytes]:
        return [self._answer(request, context, index) for index, request in enumerate(data)]

    def _answer(self, request: Any, context: Any, index: int) -> bytes:
        headers = {k.lower(): v for k, v in context.get_all_request_header(index).items()}
        rows = int(headers["x-rows"])
        if not rows:
            return b"[]"
        first = np.frombuffer(request["body"], "<f4").reshape(rows, -1)[:, 0]
        if (first == KILLS).any():
            os.kill(os.getpid(), signal.SIGKILL)
        if (first == RAISES).any():
            raise RuntimeError("a row that cannot be computed")
        time.sleep(self.pause_s)
        return json.dumps(first.tolist()).encode()
