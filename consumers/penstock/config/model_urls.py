"""What the path of a model's URL tells: the protocol, and the model's name and version.

Rule: a URL means the same wherever a person writes one. Owner: `penstock config --init` and the
library call.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import unquote

_TORCHSERVE: Final = re.compile(r"/predictions/(?P<name>[^/]+)(/(?P<version>[^/]+))?/?")
_OIP: Final = re.compile(
    r"(?P<root>.*?)/v2/models/(?P<name>[^/]+)(/versions/(?P<version>[^/]+))?(/infer)?/?"
)
_KSERVE_V1: Final = re.compile(r"/v1/models/(?P<name>[^/:]+):predict/?")
_EMBEDDINGS: Final = re.compile(r"/v1/embeddings/?")
_MLFLOW: Final = re.compile(r"/invocations/?")
# From a protocol or preset to the function that recognises its paths. If two servers share a path,
# the preset of either works for both.
PATHS: Final[Mapping[str, Callable[[str], re.Match[str] | None]]] = {
    "torchserve": _TORCHSERVE.fullmatch,
    "oip": _OIP.fullmatch,
    "kserve-v1": _KSERVE_V1.fullmatch,
    "openai-embeddings": _EMBEDDINGS.fullmatch,
    "mlflow": _MLFLOW.fullmatch,
}


def root_of(found: re.Match[str]) -> str:
    """The part of the path that stands before the protocol's own; only OIP has one."""
    return found.groupdict().get("root") or ""


def named(found: re.Match[str]) -> dict[str, str | None]:
    """`name` and `version`, where the path has a place for them."""
    parts = found.groupdict()
    keys = parts.keys() & {"name", "version"}
    return {key: unquote(parts[key]) if parts[key] else None for key in sorted(keys)}
