"""Checks everything that a worker needs, and says how to correct it.

Rule: it changes nothing, and asks what a worker asks at its start, by the same code. Owner: the
command `doctor`.
"""

from collections.abc import AsyncIterator, Sequence
from functools import partial

from penstock import config
from penstock.adapters.model_servers.choice import each_endpoint
from penstock.doctor import models, stores
from penstock.doctor.finding import Finding, found
from penstock.doctor.first_row import try_first_row
from penstock.doctor.topics import look_at_topics


async def examine(cfg: config.Config, urls: Sequence[str]) -> AsyncIterator[Finding]:
    """Run the checks one after the other; `urls`: objects that a worker should be able to read."""
    yield await found("topics", partial(look_at_topics, cfg))
    store = await found("store", partial(stores.look_at_default, cfg))
    yield store
    readable: list[str] = []
    for url in urls if store.is_well else ():
        one = await found(url, partial(stores.look_at_object, cfg, url))
        readable += [url] if one.is_well else []
        yield one
    for name in cfg.stores:
        look = partial(stores.look_at_named, name, cfg.stores[name])
        yield await found(f"stores.{name}", look)
    if cfg.output.objects is not None:
        yield await found("results", partial(stores.look_at_results, cfg, cfg.output.objects))
    for name, each in {"": cfg, **cfg.with_each_model()}.items():
        suffix = f" {name}" if name else ""
        for one_server in each_endpoint(each).values():
            model = await found(f"model{suffix}", partial(models.look_at_model, one_server))
            yield model
            if model.is_well:
                yield await found(f"limits{suffix}", partial(models.look_at_limits, one_server))
    for url in readable:
        yield await found(f"first row of {url}", partial(try_first_row, cfg, url))
