"""The network of the Crayfish benchmark behind TorchServe: 28 x 28 numbers in, ten classes out.

Rule: its weights follow from a seed, because the benchmark measures how fast rows move, not the
answers.
"""

from __future__ import annotations  # Python 3.9 cannot evaluate `X | None`

from typing import Any

import torch
from rows_handler import RowsHandler  # type: ignore[import-not-found]

# Some 28,000 parameters, as in the paper.
SIZES = (784, 32, 32, 32, 10)


class CrayfishHandler(RowsHandler):  # type: ignore[misc]
    """Answers a label and a score for each row, like the handler that it extends."""

    def initialize(self, context: Any) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        steps: list[torch.nn.Module] = []
        for inputs, outputs in zip(SIZES, SIZES[1:]):
            steps += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
        self.model = torch.nn.Sequential(*steps[:-1]).eval()
        self.features = SIZES[0]
