"""From `[[models]]` and `[[routes]]` to who answers what.

Rule: a route to a model that is not there is refused at the start. Owner: whatever has to know,
the worker and the judge.
"""

from collections.abc import Mapping, Sequence

from consumers import config
from consumers.core.routes import Route, Routes, place_of
from consumers.errors import EXIT_USAGE, Fatal
from consumers.variables import nearest


def routes_of(cfg: config.Config) -> Routes:
    """Raises `Fatal` for a route to a model that is not there."""
    names = [cfg.model.name, *(one.name for one in cfg.models)]
    routes = []
    for number, one in enumerate(cfg.routes, 1):
        models = (one.model,) if isinstance(one.model, str) else tuple(one.model)
        if wrong := _wrong_in(models, one.split, names):
            raise Fatal(f"[[routes]] number {number}: {wrong}", exit_code=EXIT_USAGE)
        if len({place_of(0, model) for model in models}) < len(models):
            raise Fatal(
                f"[[routes]] number {number}: two of these models have names that are kept by one "
                "number; rename one, and say what its server calls it by served_as",
                exit_code=EXIT_USAGE,
            )
        routes.append(Route(models, one.stream, one.bucket, one.key, one.split))
    return Routes(names, routes)


def _wrong_in(models: Sequence[str], split: Mapping[str, float], names: Sequence[str]) -> str:
    """Empty: nothing."""
    for name in (*models, *split):
        if name not in names:
            return f"there is no model {name!r}{nearest(name, names)}"
    if not models or len(set(models)) < len(models):
        return "model names one, or several different ones"
    if split and len(models) > 1:
        return "a split takes streams from one model; this route names several"
    if sum(split.values()) > 100:
        return f"a split of {sum(split.values()):g} percent: there are 100"
    return ""
