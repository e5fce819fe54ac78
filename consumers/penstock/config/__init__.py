"""The configuration: a TOML file, overridden by `PENSTOCK_SECTION__KEY` variables.

Rule: every key is declared in a section. Only `settings/`, the commands and the adapters (their own
section) read it; all other code gets plain values.
"""

from penstock.config.all_sections import Config
from penstock.config.loading import Resolved, load, resolve
from penstock.config.model_sections import Model, Priority, Protocol, Route, Shadow
from penstock.config.regions import kafka_of
from penstock.config.secrets import MASK, secret_text, shown_url, url_secrets, without
from penstock.config.sections import (
    ANSWER_BYTES_PER_ROW,
    BUFFER_BYTES,
    MIB,
    SITES,
    Access,
    Http,
    Kafka,
    Limits,
    OAuth,
    Objects,
    Output,
    Scenes,
    Section,
    Store,
    Traces,
    Window,
)
from penstock.config.texts import check_files

__all__ = [
    "ANSWER_BYTES_PER_ROW",
    "BUFFER_BYTES",
    "MASK",
    "MIB",
    "SITES",
    "Access",
    "Config",
    "Http",
    "Kafka",
    "Limits",
    "Model",
    "OAuth",
    "Objects",
    "Output",
    "Priority",
    "Protocol",
    "Resolved",
    "Route",
    "Scenes",
    "Section",
    "Shadow",
    "Store",
    "Traces",
    "Window",
    "check_files",
    "kafka_of",
    "load",
    "resolve",
    "secret_text",
    "shown_url",
    "url_secrets",
    "without",
]
