"""The example model of the real stack: a small perceptron over rows of 16 numbers, three classes.

Rule: the weights follow from a fixed seed, so that every answer can be computed again with numpy.
`python rows_model.py STORE` writes the archive for TorchServe; that needs torch.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

NAME = "rows"
VERSION = "1.0"
SIZES = (16, 64, 64, 3)
# Of the first ten seeds, this one gives the three labels most evenly to normally distributed rows.
SEED = 5

Layer = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]


def layers() -> list[Layer]:
    """Weight (outputs x inputs) and bias of each layer, in order."""
    # RandomState gives the same numbers in all versions of numpy; default_rng does not promise
    # that.
    random = np.random.RandomState(SEED)
    return [
        (
            # He initialisation: values keep their size through ReLU, so that all labels occur.
            (random.standard_normal((outputs, inputs)) * np.sqrt(2 / inputs)).astype(np.float32),
            (random.standard_normal(outputs) * 0.1).astype(np.float32),
        )
        for inputs, outputs in zip(SIZES, SIZES[1:])
    ]


def torch_module() -> Any:
    """The perceptron as a torch module that answers logits."""
    import torch  # noqa: PLC0415  (torch is only there where the archive is built)

    steps: list[torch.nn.Module] = []
    for weight, bias in layers():
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0])
        linear.load_state_dict({"weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)})
        steps += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*steps[:-1]).eval()


def write_archive(store: Path) -> None:
    """Write `rows.mar` into `store`, with the handler that lies beside this file."""
    import torch  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch, "rows.pt")
        torch.jit.save(torch.jit.script(torch_module()), str(script))
        # -W: Python would warn that the packager's __init__ imports the module that -m runs.
        command = [sys.executable, "-W", "ignore", "-m", "model_archiver.model_packaging"]
        command += ["--model-name", NAME, "--version", VERSION, "--force"]
        command += ["--serialized-file", str(script)]
        command += ["--handler", str(Path(__file__).with_name("rows_handler.py"))]
        subprocess.run([*command, "--export-path", str(store)], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write rows.mar, the example model's archive.")
    parser.add_argument("store", type=Path, help="folder for the archive")
    write_archive(parser.parse_args().store)
