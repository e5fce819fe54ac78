"""Which model answers a call of the library, and with which settings.

Rule: the caller's arguments override the environment, which overrides the file. A URL of a model
means the same in Python, for `penstock predict` and for `penstock replay`. Owner: the call.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args
from urllib.parse import urlsplit

from msgspec import structs

from penstock import requests
from penstock.config import Config, Model, Protocol, load, shown_url
from penstock.config.model_urls import PATHS, named, root_of
from penstock.config.unknown_keys import nearest
from penstock.errors import usage

# A TOML file, or a dictionary of the tables that would stand in one.
Settings = Config | Mapping[str, Any] | str | os.PathLike[str]

_PROTOCOLS: Final = get_args(Protocol)
# How to write the URL of a model. With the Open Inference Protocol the path may be left out; then
# `model.name` names the model.
_TORCHSERVE_URL: Final = "http://host:port/predictions/NAME"
_OIP_URL: Final = "{scheme}://host:port or {scheme}://host:port/v2/models/NAME"
_GRPC: Final = ("grpc", "grpcs")


def configured(settings: Settings | None) -> Config:
    """The configuration that a caller gives as `config`. Raises `Fatal` for a wrong key or
    value.
    """
    if isinstance(settings, Config):
        return settings
    return load(Path(settings) if isinstance(settings, str | os.PathLike) else settings)


def chosen(
    cfg: Config,
    model: str | None,
    protocol: str | None = None,
    request: str | None = None,
    keep: Sequence[str] | None = None,
) -> tuple[Config, str]:
    """The configuration with the chosen model, and the name of that model in records. `model`: a
    URL, or the name of a configured model; None: the default model.
    """
    if keep is not None:
        names = [keep] if isinstance(keep, str) else list(keep)
        cfg = structs.replace(cfg, rows=structs.replace(cfg.rows, keep=names))
    if model is None or "://" in model:
        found = with_model(cfg, model, protocol, request)
        return found, found.model.name
    named = {cfg.model.name: cfg, **cfg.with_each_model()}
    if model not in named:
        raise usage(
            f"there is no model {model!r}{nearest(model, named)}; name one of "
            f"{', '.join(named)}, or write its URL, as {_TORCHSERVE_URL}"
        )
    return with_model(named[model], None, protocol, request), model


def with_model(
    cfg: Config, url: str | None, protocol: str | None = None, request: str | None = None
) -> Config:
    """The configuration with the model at `url`; None: with the configured model."""
    model = cfg.model
    if protocol is not None:
        if protocol not in _PROTOCOLS:
            said = f"protocol = {protocol!r} is none of {', '.join(_PROTOCOLS)}"
            raise usage(f"{said}{nearest(protocol, _PROTOCOLS)}")
        model = structs.replace(model, protocol=protocol)
    if request is not None:
        requests.find(request)
        model = structs.replace(model, request=request)
    if url is not None:
        # The model of the URL does not have the replicas and the management of the configured
        # model.
        model = structs.replace(model, replicas=None, management_url=None)
        model = structs.replace(model, **_place_of(url, model))
    return structs.replace(cfg, model=model)


def _place_of(url: str, model: Model) -> dict[str, Any]:
    """What the URL says: the server; with some protocols also the model's name and version."""
    parts = urlsplit(url)
    is_grpc = model.protocol == "oip-grpc"
    if parts.scheme not in (_GRPC if is_grpc else ("http", "https")) or not parts.hostname:
        example = _examples(model.protocol)
        raise usage(f"{shown_url(url)} is no URL of protocol = {model.protocol!r}: write {example}")
    server = f"{parts.scheme}://{parts.netloc}"
    if model.protocol == "http":
        # A URL with a path is the whole address: the path of a preset is not put behind it.
        return {"url": url, "path": "", "health": ""} if parts.path.strip("/") else {"url": url}
    if model.protocol == "openai-embeddings":
        return {"url": url.removesuffix("/").removesuffix("/embeddings")}
    if model.protocol == "torchserve":
        found = PATHS["torchserve"](parts.path)
        if found is None:
            raise usage(
                f"{shown_url(url)} is no URL of TorchServe (protocol = 'torchserve'), which is "
                f"{_TORCHSERVE_URL}\nof another server name the protocol: 'http' takes any URL; "
                f"there are also {', '.join(_PROTOCOLS[1:3])} and {_PROTOCOLS[-1]}"
            )
        return {"url": server, **named(found)}
    found = PATHS["oip"](parts.path)
    if found is not None:
        return {"url": server + root_of(found), **named(found)}
    if "v2" in parts.path.split("/") or (is_grpc and parts.path.strip("/")):
        example = _examples(model.protocol)
        raise usage(f"{shown_url(url)} is no URL of protocol = {model.protocol!r}: write {example}")
    return {"url": url}


def _examples(protocol: Protocol) -> str:
    if protocol == "torchserve":
        return _TORCHSERVE_URL
    if protocol in ("oip", "oip-grpc"):
        return _OIP_URL.format(scheme="grpc" if protocol == "oip-grpc" else "http")
    return "http://host:port/..."
