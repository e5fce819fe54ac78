"""Is the model there, and what does its server take?"""

from contextlib import aclosing

from penstock import config, requests
from penstock.adapters.model_servers.choice import advice, open_model, wanted
from penstock.calls.canary import canary_of
from penstock.calls.wait_for_services import ask_model
from penstock.errors import Fatal


async def look_at_model(cfg: config.Config) -> str:
    form = requests.find(cfg.model.request).takes
    canary = canary_of(cfg.model.canary, form)
    async with aclosing(open_model(cfg)) as model:
        await ask_model(model.predict, [canary] if canary is not None else [])
    took = "takes the row of model.canary" if canary is not None else "is there"
    return f"{cfg.model.name} at {config.shown_url(cfg.model.url)} {took}"


async def look_at_limits(cfg: config.Config) -> str:
    """What the model takes and how many rows a request, as far as its server tells."""
    if warning := await advice(cfg):
        raise Fatal(warning)
    signature = await wanted(cfg)
    if signature is None:
        return "the model's server does not tell what it takes"
    wants = f"the model wants {signature}"
    if signature.most_rows is None:
        return wants
    asked = cfg.window.max_rows
    lowered = f"; window.max_rows = {asked} is cut to that" if asked > signature.most_rows else ""
    return f"{wants}, at most {signature.most_rows} rows a request{lowered}"
