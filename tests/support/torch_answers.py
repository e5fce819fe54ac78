"""The example model evaluated by torch itself: a program for the Python that has it.

Rule: reads rows as JSON on stdin and writes one answer per row on stdout; its argument is the path
of `rows_model.py`. Nothing of this project can be imported there.
"""

import json
import runpy
import sys

import torch

module = runpy.run_path(sys.argv[1])["torch_module"]()
with torch.no_grad():
    chances = torch.softmax(module(torch.tensor(json.load(sys.stdin), dtype=torch.float32)), dim=1)
scores, labels = chances.max(dim=1)
pairs = zip(labels.tolist(), scores.tolist(), strict=True)
json.dump([{"label": label, "score": score} for label, score in pairs], sys.stdout)
