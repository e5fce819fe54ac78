"""What a server offers that does not know the address or the model it was asked for.

Rule: it is asked only after such a refusal, below the same root, for `ASK_S` in all, because a
start waits; and by GET, which changes nothing, unless the server says that it knows the POST. A
list of models tells the protocol, too: each has its list at another address.
"""

import asyncio
import re
from contextlib import suppress
from typing import Any, Final

import orjson

from penstock.adapters.model_servers.http_calls import ModelHttp
from penstock.adapters.model_servers.refusals import OK, NotThere, clean
from penstock.errors import PenstockError, usage

# Less than a start waits for the model's answer (asking/model_calls.py).
ASK_S: Final = 2.0
# So many models are named.
MOST_NAMED: Final = 8
_OIP: Final = 'model.protocol = "oip"'
_TORCHSERVE: Final = 'model.protocol = "torchserve"'
_OPENAI: Final = 'model.protocol = "openai-chat" or "openai-embeddings"'
_KSERVE: Final = 'model.protocol = "http" and model.preset = "kserve-v1"'
# Where servers list their models: Triton and MLServer; KServe; vLLM, TEI and Ollama, or KServe's
# first protocol; TorchServe with one address for all its interfaces.
_LISTS: Final = (
    ("POST", "v2/repository/index", _OIP),
    ("GET", "v2/models", _OIP),
    ("GET", "v1/models", _OPENAI),
    ("GET", "models", _TORCHSERVE),
)
# The part of `model.url` that is a protocol's own.
_OF_PROTOCOL: Final = re.compile(r"/(?:(?:predictions|v1|v2|invocations)(?:/.*)?)?$")


async def with_offers(error: PenstockError, http: ModelHttp) -> PenstockError:
    """The error, and what the server has instead, if it says so."""
    if not isinstance(error, NotThere):
        return error
    offer = ""
    with suppress(TimeoutError):
        async with asyncio.timeout(ASK_S):
            offer = await _offer(http)
    return usage(f"{error}{offer}")


async def _offer(http: ModelHttp) -> str:
    for method, path, usual in _LISTS:
        if method == "POST" and await _asked(http, "v2") is None:
            continue
        document = await _asked(http, path, method)
        if not (names := _names(document)):
            continue
        keys = _KSERVE if usual is _OPENAI and "data" not in document else usual
        shown = ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
        plural = "s" * (len(names) > 1)
        remedy = "" if f'"{http.protocol}"' in keys else f"; for its protocol set {keys}"
        return f". The server has the model{plural} {shown}{remedy}"
    health = await _asked(http, "ping")
    if isinstance(health, dict) and "status" in health:
        remedy = "" if http.protocol == "torchserve" else f": for its protocol set {_TORCHSERVE}"
        return (
            f". The server answers /ping as TorchServe does{remedy}; its management address lists "
            "its models (GET /models, by default the next port)"
        )
    return ""


async def _asked(http: ModelHttp, path: str, method: str = "GET") -> Any:
    base = http.access.base
    url = base.with_path(f"{_OF_PROTOCOL.sub('', base.path)}/{path}")
    try:
        reply = await http.look(url, method)
        return orjson.loads(reply.body) if reply.status == OK else None
    except (PenstockError, orjson.JSONDecodeError):
        return None


def _names(document: Any) -> list[str]:
    if isinstance(document, dict):
        document = document.get("models") or document.get("data")
    entries = document if isinstance(document, list) else []
    return [name for entry in entries if (name := _name(entry))]


def _name(entry: Any) -> str:
    if isinstance(entry, dict):
        entry = next((entry[key] for key in ("name", "modelName", "id") if key in entry), None)
    return clean(entry) if isinstance(entry, str) else ""
