"""What the example model must answer, computed beside the server by numpy, or by torch itself.

Rule: shares the weights with the model and nothing of the serving path, so that agreement proves
it.
"""

import json
import subprocess
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.tools.handlers import rows_model

Rows = npt.NDArray[np.float32]


def random_rows(count: int, seed: int = 1) -> Rows:
    generator = np.random.default_rng(seed)
    return generator.standard_normal((count, rows_model.SIZES[0])).astype(np.float32)


def numpy_answers(rows: Rows) -> list[dict[str, Any]]:
    """`{"label": int, "score": float}` for each row."""
    *hidden, last = rows_model.layers()
    signal = rows
    for weight, bias in hidden:
        signal = np.maximum(signal @ weight.T + bias, 0)
    logits = signal @ last[0].T + last[1]
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    labels, scores = chances.argmax(axis=1).tolist(), chances.max(axis=1).tolist()
    return [{"label": label, "score": score} for label, score in zip(labels, scores, strict=True)]


def torch_answers(rows: Rows, python: str) -> list[dict[str, Any]]:
    """The same by torch, in a process of `python`."""
    program = __file__.replace("reference_model", "torch_answers")
    answer = subprocess.run(
        [python, program, rows_model.__file__],
        input=json.dumps(rows.tolist()),
        capture_output=True,
        text=True,
        check=True,
    )
    parsed: list[dict[str, Any]] = json.loads(answer.stdout)
    return parsed
