"""Settings: TOML, overridden by `PENSTOCK_SECTION__KEY` variables.

Rule: every key is declared in a section; an unknown key is an error. Only `app.py`, `settings.py`,
the commands and the adapters (each its own section) read settings; all other code gets plain
values. Owner: the command that loads it.
"""

from penstock.config.files import check_files
from penstock.config.loading import Resolved, load, resolve
from penstock.config.model_sections import Model, NamedModel, Preset, Protocol, Route, Shadow
from penstock.config.regions import in_region, kafka_of
from penstock.config.secrets import MASK, SECRET_KEYS, shown_url, url_secrets
from penstock.config.sections import (
    MIB,
    Access,
    Delivery,
    Http,
    Kafka,
    Limits,
    Log,
    Objects,
    Output,
    Region,
    Rows,
    Scenes,
    Section,
    Store,
    Traces,
    Window,
)
from penstock.config.whole import NAMED, SECTIONS, TABLES, Config

__all__ = [
    "MASK",
    "MIB",
    "NAMED",
    "SECRET_KEYS",
    "SECTIONS",
    "TABLES",
    "Access",
    "Config",
    "Delivery",
    "Http",
    "Kafka",
    "Limits",
    "Log",
    "Model",
    "NamedModel",
    "Objects",
    "Output",
    "Preset",
    "Protocol",
    "Region",
    "Resolved",
    "Route",
    "Rows",
    "Scenes",
    "Section",
    "Shadow",
    "Store",
    "Traces",
    "Window",
    "check_files",
    "in_region",
    "kafka_of",
    "load",
    "resolve",
    "shown_url",
    "url_secrets",
]
