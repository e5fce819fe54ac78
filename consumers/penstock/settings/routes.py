"""Translates `[[models]]` and `[[routes]]`, for the worker and for the judge.

Rule: a route to a model that is not configured is refused at the start.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from penstock import config
from penstock.config.unknown_keys import nearest
from penstock.core.records.json_pointers import is_pointer
from penstock.core.routing.model_routes import ModelRoute, Routes, place_of
from penstock.errors import usage

# Ten times the answers of large embeddings. More than this for each row of a batch could hold up
# the event loop for a second.
_SHADOW_ANSWER_BYTES: Final = 128 << 10


def routes_of(cfg: config.Config) -> Routes:
    """The configured models and routes. Raises `Fatal` for a route to a model that is not
    configured.
    """
    names = [cfg.model.name, *cfg.with_each_live_model()]
    return Routes(names, [make() for make in each_route(cfg)])


def each_route(cfg: config.Config) -> Iterator[Callable[[], ModelRoute]]:
    """Yields for each route a function that makes the route or raises `Fatal`. So a caller can try
    each route, and find all errors.
    """
    names = [cfg.model.name, *cfg.with_each_live_model()]
    return (partial(_route, number, route, names) for number, route in enumerate(cfg.routes, 1))


def _route(number: int, route: config.Route, names: Sequence[str]) -> ModelRoute:
    models = route.models
    if wrong := _wrong_in(models, route.split, names):
        raise usage(f"[[routes]] number {number}: {wrong}")
    if len({place_of(0, model) for model in models}) < len(models):
        raise usage(
            f"[[routes]] number {number}: two of these models have names that are kept by one "
            "number; rename one, and say what its server calls it by served_as"
        )
    return ModelRoute(models, route.stream, route.bucket, route.key, route.split)


def shadow_of(cfg: config.Config) -> tuple[config.Shadow, config.Config] | None:
    """Returns two things: the shadow's section, and the configuration with the shadow as the model.
    None: there is no shadow. Raises `Fatal`.
    """
    shadow, others = cfg.model.shadow, cfg.with_each_model()
    for model in cfg.models:
        if model.shadow is not None:
            raise usage(f"[[models]] {model.name!r} has a shadow: only [model] may have one")
    if shadow is None:
        return None
    what = ""
    if shadow.model == cfg.model.name:
        what = f"model = {shadow.model!r} is the model itself; name another one of [[models]]"
    elif shadow.model not in others:
        near = nearest(shadow.model, others)
        what = f"there is no model {shadow.model!r} in [[models]]{near}"
    for pointer in shadow.pointers:
        if not is_pointer(pointer):
            what = f'{pointer!r} is no JSON pointer; write "/{pointer}", or "" for the whole'
    if what:
        raise usage(f"[model.shadow]: {what}")
    other = others[shadow.model]
    # Reading a large answer holds up the event loop, and so the live work.
    limits = replace(
        cfg.limits,
        answer_bytes_per_row=min(cfg.limits.answer_bytes_per_row, _SHADOW_ANSWER_BYTES),
        buffer_bytes=shadow.buffer_bytes,
    )
    return shadow, replace(other, limits=limits)


def _wrong_in(models: Sequence[str], split: Mapping[str, float], names: Sequence[str]) -> str:
    """What is wrong with a route, as a sentence for people; empty if nothing is wrong."""
    for name in (*models, *split):
        if name not in names:
            return f"neither [model] nor [[models]] has {name!r}{nearest(name, names)}"
    if not models or len(set(models)) < len(models):
        return "model names one, or several different ones"
    if split and len(models) > 1:
        return "a split takes streams from one model; this route names several"
    if sum(split.values()) > 100:
        return f"a split of {sum(split.values()):g} percent: there are 100"
    return ""
