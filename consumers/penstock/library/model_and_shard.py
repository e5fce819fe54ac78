"""What a call of the library has chosen: settings, model, and this process's share of the objects.

Rule: the caller's arguments override the environment, which overrides the file. A URL of a model
means the same in Python, for `penstock predict` and for `penstock replay`. Processes that share
objects do not talk to each other.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, get_args
from urllib.parse import urlsplit

from msgspec import structs

from penstock import config
from penstock.adapters.inputs.left_out_objects import Shard
from penstock.adapters.model_servers import request_forms
from penstock.config import Config, Protocol, load, shown_url
from penstock.config.model_sections import MODEL_PATHS, Preset, name_and_version, path_before_name
from penstock.config.unknown_keys import nearest
from penstock.errors import usage

# How a caller gives the configuration: as a `Config`, as the path of a TOML file, or as a
# dictionary with the tables of such a file.
Settings = Config | Mapping[str, Any] | str | os.PathLike[str]

_PROTOCOLS: Final = get_args(Protocol)
# The forms that messages suggest for the URL of a model. With the Open Inference Protocol the path
# may be left out; then `model.name` names the model.
_TORCHSERVE_URL: Final = "http://host:port/predictions/NAME"
_OIP_URL: Final = "{scheme}://host:port or {scheme}://host:port/v2/models/NAME"
_GRPC: Final = ("grpc", "grpcs")
# Servers whose names people give for a protocol.
_OF_OIP: Final = ("triton", "mlserver", "kserve", "kserve-v2", "v2")
_PRESETS: Final = get_args(Preset)


def configured(settings: Settings | None) -> Config:
    """Make the configuration from a caller's argument `config`. Raises `Fatal` for a wrong key or
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
    """Returns two things: the configuration with the chosen model; and the name that this model has
    in records. `model`: a URL, or the name of a configured model; None: the default model.
    """
    if keep is not None:
        names = [keep] if isinstance(keep, str) else list(keep)
        cfg = structs.replace(cfg, rows=structs.replace(cfg.rows, keep=names))
    if model is None or "://" in model:
        resolved = with_model(cfg, model, protocol, request)
        return resolved, resolved.model.name
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
    """The configuration with the model at `url`. If `url` is None, the model is the configured
    one.
    """
    model = cfg.model
    if protocol is not None:
        if protocol not in _PROTOCOLS:
            message = f"protocol = {protocol!r} is none of {', '.join(_PROTOCOLS)}"
            raise usage(f"{message}{_spoken_by(protocol) or nearest(protocol, _PROTOCOLS)}")
        model = structs.replace(model, protocol=protocol)
    if request is not None:
        request_forms.find(request)
        model = structs.replace(model, request=request)
    if url is not None:
        # The replicas and the management address belong to the configured model, not to the model
        # at the URL, so they are removed.
        model = structs.replace(model, replicas=None, management_url=None)
        model = structs.replace(model, **_place_of(url, model))
    return structs.replace(cfg, model=model)


def _spoken_by(server: str) -> str:
    """A text that says which protocol a server of this name speaks; empty if it is not known."""
    if server in _OF_OIP:
        return "; its servers speak oip"
    return f"; set it to http, and model.preset to {server}" if server in _PRESETS else ""


def _place_of(url: str, model: config.Model) -> dict[str, Any]:
    """The keys of `[model]` that follow from the URL: those of the server; with some protocols also
    the model's name and version.
    """
    parts = urlsplit(url)
    is_grpc = model.protocol == "oip-grpc"
    if parts.scheme not in (_GRPC if is_grpc else ("http", "https")) or not parts.hostname:
        example = _examples(model.protocol)
        raise usage(f"{shown_url(url)} is no URL of protocol = {model.protocol!r}: write {example}")
    server = f"{parts.scheme}://{parts.netloc}"
    if model.protocol == "http":
        # If the URL has a path, it is the whole address, so the preset's path is not put behind it.
        return {"url": url, "path": "", "health": ""} if parts.path.strip("/") else {"url": url}
    if model.protocol in ("openai-embeddings", "openai-chat"):
        root = url.removesuffix("/").removesuffix("/embeddings")
        return {"url": root.removesuffix("/chat/completions")}
    if model.protocol == "torchserve":
        path = MODEL_PATHS["torchserve"](parts.path)
        if path is None:
            *others, last = (name for name in _PROTOCOLS if name not in ("torchserve", "http"))
            raise usage(
                f"{shown_url(url)} is no URL of TorchServe (protocol = 'torchserve'), which is "
                f"{_TORCHSERVE_URL}\nof another server name the protocol: 'http' takes any URL; "
                f"there are also {', '.join(others)} and {last}"
                f"{'; this looks like oip' if MODEL_PATHS['oip'](parts.path) else ''}"
            )
        return {"url": server, **name_and_version(path)}
    path = MODEL_PATHS["oip"](parts.path)
    if path is not None:
        return {"url": server + path_before_name(path), **name_and_version(path)}
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


class Share(NamedTuple):
    """Tells which of the objects are answered. `shard`: only objects of this shard.
    `skip_existing`: True if only objects without a result are answered. `skipped`: a function that
    is called for each object that has a result.
    """

    shard: Shard | None = None
    skip_existing: bool = False
    skipped: Callable[[], object] = lambda: None


ALL: Final = Share()

_WRITTEN: Final = re.compile(r"(?P<index>\d+|auto)(/(?P<count>\d+))?")
# Kubernetes sets this variable for a Job with completionMode: Indexed. No variable of Kubernetes
# tells how many processes there are.
_KUBERNETES: Final = "JOB_COMPLETION_INDEX"
_AWS: Final = ("AWS_BATCH_JOB_ARRAY_INDEX", "AWS_BATCH_JOB_ARRAY_SIZE")
_SLURM: Final = "SLURM_ARRAY_TASK_"


def shard_of(text: str, environ: Mapping[str, str]) -> Shard:
    """The shard that `text` names. `I/N` names it directly. With `auto/N` or `auto`, the
    scheduler's variables tell the rest. Raises `Fatal`.
    """
    match = _WRITTEN.fullmatch(text)
    if match is None or (match["index"] != "auto" and match["count"] is None):
        _refuse_shard(text, "write I/N, as 0/4 to 3/4, or auto/N, or auto")
    given = int(match["count"]) if match["count"] else None
    index, count = (
        _by_scheduler(text, environ) if match["index"] == "auto" else (int(match["index"]), None)
    )
    if given is not None and count is not None and given != count:
        _refuse_shard(text, f"the scheduler of this process says that there are {count}")
    count = given if given is not None else count
    if count is None:
        _refuse_shard(text, f"{_KUBERNETES} says which, but nothing says of how many: write auto/N")
    if not 0 <= index < count:
        _refuse_shard(text, f"I counts from 0 to N - 1, and it is {index} of {count}")
    return Shard(index, count)


def _by_scheduler(text: str, environ: Mapping[str, str]) -> tuple[int, int | None]:
    """This process's index and the number of processes, by the scheduler's variables. The number is
    None if the scheduler does not tell it.
    """
    try:
        if _KUBERNETES in environ:
            return int(environ[_KUBERNETES]), None
        if _AWS[0] in environ:
            size = environ.get(_AWS[1])
            return int(environ[_AWS[0]]), int(size) if size is not None else None
        if f"{_SLURM}ID" in environ:
            return _of_slurm(text, environ)
        _refuse_shard(text, f"there is no {_KUBERNETES}, {_AWS[0]} or {_SLURM}ID: write I/N")
    except ValueError as error:
        _refuse_shard(text, f"a scheduler's variable is no number: {error}")


def _of_slurm(text: str, environ: Mapping[str, str]) -> tuple[int, int]:
    """This process's index and the number of processes, by Slurm's variables. Slurm's task ids may
    begin anywhere, and have any step: `--array=1-7:2` makes the tasks 1, 3, 5 and 7.
    """
    number, count, first, last = (
        int(environ[f"{_SLURM}{name}"]) if f"{_SLURM}{name}" in environ else None
        for name in ("ID", "COUNT", "MIN", "MAX")
    )
    if number is None or count is None:
        _refuse_shard(text, f"there is {_SLURM}ID, but no {_SLURM}COUNT: write I/N")
    if first is None or last is None or count < 2:
        return (number if first is None else number - first), count
    step, rest = divmod(last - first, count - 1)
    if rest or (number - first) % max(step, 1):
        _refuse_shard(text, "the ids of --array are not evenly spaced: write I/N")
    return (number - first) // max(step, 1), count


def _refuse_shard(text: str, reason: str) -> NoReturn:
    raise usage(f"--shard {text}: {reason}")
