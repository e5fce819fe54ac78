"""The libraries that formats load only when an object needs them.

Rule: to load such a library takes up to half a second. So a decoder tells the worker which of them
it has loaded, and the zygote loads these before it forks the next decoder. What a decoder says
chooses from this list, and the zygote loads nothing else.
"""

import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Final

_PICTURES: Final = ("Bmp", "Gif", "Jpeg", "Png", "Ppm", "Tiff", "WebP", "Avif")
# For each library the modules that formats use.
_MODULES: Final = {
    "PIL": ("PIL.ImageOps", *(f"PIL.{kind}ImagePlugin" for kind in _PICTURES)),
    "av": ("av", "av.codec.context", "av.video.reformatter"),
    "fastavro": ("fastavro",),
    "lz4": ("lz4.block",),
    "pillow_heif": ("pillow_heif",),
    "simplejpeg": ("simplejpeg",),
}


def loaded() -> frozenset[str]:
    """Which of these libraries this process has loaded."""
    return frozenset(name for name in _MODULES if name in sys.modules)


def known(names: Iterable[str]) -> frozenset[str]:
    """Those of the names that are in the list."""
    return frozenset(names) & _MODULES.keys()


def load(names: Iterable[str]) -> None:
    for name in names:
        for module in _MODULES[name]:
            with suppress(Exception):  # then it is missing for the object, which says so
                import_module(module)
