"""A network of torchvision's and its answers by torch itself: a program for the Python that has it.

Rule: `make NET` writes the network, with random weights of a fixed seed, for a handler; `answer NET
HANDLER` reads paths of pictures, a line each, and writes the chances of each picture's classes as
JSON. Nothing of this project can be imported there, and nothing of a handler is used.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torchvision import models, transforms

CLASSES = 10
NORMAL = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
# What each handler does before its network: docs/models.md, and TorchServe's image_classifier.
BEFORE = {
    "frames": transforms.Compose(
        [transforms.Resize((64, 64)), transforms.ToTensor(), NORMAL],
    ),
    "image_classifier": transforms.Compose(
        [transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(), NORMAL]
    ),
}


class InDouble(torch.nn.Module):  # type: ignore[misc]
    """Batches of other sizes are summed in another order, which an untrained network enlarges to
    the third digit: with double precision it stays below the sixth.
    """

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net.double()

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.net(pixels.double()).float()


def network(handler: str) -> Any:
    torch.manual_seed(7)
    net: torch.nn.Module = models.shufflenet_v2_x0_5(num_classes=CLASSES)
    if handler == "image_classifier":
        # A quarter of the handler's 224 pixels: 2 ms a picture on one core instead of 33.
        net = torch.nn.Sequential(torch.nn.AvgPool2d(4), net)
    _teach(net, 64 if handler == "frames" else 224)
    return InDouble(net).eval()


def _teach(net: torch.nn.Module, side: int) -> None:
    """Untrained it answers nearly the same to every picture: its normalisation sees some plain
    colours, and its last layer is spread, so that they differ.
    """
    pictures = torch.randn(64, 3, 1, 1).expand(64, 3, side, side)
    pictures = pictures + torch.rand(64, 3, side, side)
    net.train()
    with torch.no_grad():
        for _ in range(5):
            net(pictures)
        logits = net.eval()(pictures)
        last = [layer for layer in net.modules() if isinstance(layer, torch.nn.Linear)][-1]
        spread = logits.std(0)
        last.weight.copy_(last.weight / spread[:, None])
        last.bias.copy_((last.bias - logits.mean(0)) / spread)


def answer(net: Any, handler: str, pictures: list[Path]) -> list[list[float]]:
    chances: list[list[float]] = []
    with torch.no_grad():
        for path in pictures:
            pixels = BEFORE[handler](Image.open(path).convert("RGB"))
            chances += torch.softmax(net(pixels[None]), dim=1).tolist()
    return chances


if __name__ == "__main__":
    verb, file, handler = sys.argv[1:]
    if verb == "make":
        torch.jit.save(torch.jit.script(network(handler)), file)
    else:
        pictures = [Path(line) for line in sys.stdin.read().splitlines()]
        json.dump(answer(torch.jit.load(file), handler, pictures), sys.stdout)
