"""The example model as plain numpy, for the programs in this folder.

Rule: of the project, this file imports only the model's weights, because it runs in the environment
of each server. The model `rows` answers a bad row by an error of its own; `strict` refuses the
whole request, as most models do.
"""

import os
from typing import Any

import numpy as np
from rows_model import SIZES, layers

FEATURES = SIZES[0]
# The most rows in one request: the default of `window.max_rows`.
MOST_ROWS = 512
# A row that begins with this number makes `strict` raise.
RAISES = -666.0
# A row that begins with this number ends the process.
KILLS = -667.0
LAYERS = layers()


def answers(rows: Any) -> tuple[Any, Any, Any]:
    """Three arrays with a value a row: label (int64), score (float32) and complaint (bytes)."""
    *hidden, last = LAYERS
    signal = np.asarray(rows, np.float32)
    if signal.ndim != 2 or signal.shape[1] != FEATURES:
        raise ValueError(f"rows of {FEATURES} numbers are wanted, not {list(signal.shape)}")
    for weight, bias in hidden:
        signal = np.maximum(signal @ weight.T + bias, 0)
    logits = signal @ last[0].T + last[1]
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    scores = chances.max(axis=1).astype(np.float32)
    complaints = np.where(np.isfinite(scores), b"", b"the answer is not a finite number")
    return chances.argmax(axis=1).astype(np.int64), np.nan_to_num(scores), complaints


def strict_answers(rows: Any) -> tuple[Any, Any]:
    """Label and score of each row. Raises for the whole request if one row is bad."""
    labels, scores, complaints = answers(rows)
    if (np.asarray(rows)[:, 0] == KILLS).any():
        os._exit(1)
    if any(complaints) or (np.asarray(rows)[:, 0] == RAISES).any():
        raise ValueError("a row is bad")
    return labels, scores


def json_answers(elements: list[Any], *, strict: bool = False) -> list[dict[str, Any]]:
    """For plain JSON servers: one object for each element. `strict` raises for a bad row."""
    if strict:
        labels, scores = strict_answers(elements)
        return _objects(labels, scores)
    fits = [_is_row(element) for element in elements]
    kept = [element for element, is_fit in zip(elements, fits, strict=True) if is_fit]
    answered = iter(_told(kept) if kept else [])
    error = {"error": f"a row is an array of {FEATURES} numbers"}
    return [next(answered) if is_fit else error for is_fit in fits]


def _is_row(element: Any) -> bool:
    try:
        return bool(np.asarray(element, np.float32).shape == (FEATURES,))
    except (TypeError, ValueError):
        return False


def _told(rows: list[Any]) -> list[dict[str, Any]]:
    labels, scores, complaints = answers(rows)
    objects = _objects(labels, scores)
    return [
        {"error": complaint.decode()} if complaint else one
        for one, complaint in zip(objects, complaints, strict=True)
    ]


def _objects(labels: Any, scores: Any) -> list[dict[str, Any]]:
    pairs = zip(labels.tolist(), scores.tolist(), strict=True)
    return [{"label": label, "score": score} for label, score in pairs]
