"""The whole configuration: all sections, and how it is printed without its secrets.

Rule: `Config` holds values only, and never changes.
"""

import re
from typing import Any, get_type_hints

import msgspec
from msgspec import field
from msgspec.structs import replace

from penstock.config.model_sections import Model, NamedModel, Priority, Route
from penstock.config.secrets import mask, secrets
from penstock.config.sections import (
    Delivery,
    Http,
    Kafka,
    Limits,
    Log,
    Objects,
    Output,
    Region,
    Results,
    Rows,
    Scenes,
    Section,
    Store,
    TopLevel,
    Traces,
    Window,
)
from penstock.errors import usage


class Config(Section, frozen=True):
    """All sections; get one from `load`. `region`: the region of this worker."""

    region: str | None = None
    kafka: Kafka = field(default_factory=Kafka)
    objects: Objects = field(default_factory=Objects)
    stores: dict[str, Store] = field(default_factory=dict)
    rows: Rows = field(default_factory=Rows)
    window: Window = field(default_factory=Window)
    model: Model = field(default_factory=Model)
    output: Output = field(default_factory=Output)
    results: Results = field(default_factory=Results)
    delivery: Delivery = field(default_factory=Delivery)
    limits: Limits = field(default_factory=Limits)
    scenes: Scenes = field(default_factory=Scenes)
    traces: Traces = field(default_factory=Traces)
    http: Http = field(default_factory=Http)
    log: Log = field(default_factory=Log)
    models: list[NamedModel] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)
    priorities: list[Priority] = field(default_factory=list)
    regions: dict[str, Region] = field(default_factory=dict)

    @property
    def helped(self) -> list[str]:
        """The regions that a worker of this region helps."""
        return self.regions[self.region].fallback if self.region is not None else []

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics that are configured by name: the input topics, `kafka.rekey`, the output
        topic, the dead-letter topic, and the shadow topic if there is a shadow.
        """
        between = [self.kafka.rekey] if self.kafka.rekey is not None else []
        several = (*self.all_inputs, *between, self.output.topic, self.output.dead_letter_topic)
        return several if self.model.shadow is None else (*several, self.output.shadow_topic)

    @property
    def all_inputs(self) -> list[str]:
        """The input topics, and those of the regions that this worker helps."""
        helped = [topic for name in self.helped for topic in self.regions[name].topics or ()]
        return [*self.kafka.inputs, *helped]

    def of_input(self, topic: str) -> "Config":
        """The configuration with this topic as the only input."""
        kafka = replace(self.kafka, input_topic=topic, input_topics=None, input_pattern=None)
        return replace(self, kafka=kafka)

    def after_rekey(self) -> "Config":
        """The configuration for the worker and for all others that read the rekeyer's output. Their
        only input is the topic `kafka.rekey`. They read only its committed records, because the
        rekeyer writes in transactions. Without a rekeyer, the configuration is unchanged.
        """
        topic = self.kafka.rekey
        if topic is None:
            return self
        settings = self.of_input(topic)
        kafka = replace(settings.kafka, rekey=None, isolation="read_committed")
        return replace(settings, kafka=kafka)

    def without_shadow(self) -> "Config":
        """The configuration without the shadow, and without a model that is used only as the
        shadow.
        """
        live = self.with_each_live_model()
        return replace(
            self,
            model=replace(self.model, shadow=None),
            models=[model for model in self.models if model.name in live],
        )

    def with_each_live_model(self) -> "dict[str, Config]":
        """The same as `with_each_model`, but without a model that is used only as the shadow: no
        route leads to it.
        """
        shadow = self.model.shadow
        routed = {name for route in self.routes for name in route.names}
        return {
            name: cfg
            for name, cfg in self.with_each_model().items()
            if shadow is None or name != shadow.model or name in routed
        }

    def with_each_model(self) -> "dict[str, Config]":
        """A mapping from the name of each of `[[models]]` to a configuration that has this model as
        its default model.
        """
        configs: dict[str, Config] = {}
        for section in self.models:
            if section.name == self.model.name or section.name in configs:
                raise usage(
                    f"two models are called {section.name!r}: give one another name, and say what "
                    "its server calls it by served_as"
                )
            kept = {name: getattr(section, name) for name in Model.__struct_fields__}
            model = Model(**(kept | {"name": section.served_as or section.name}))
            configs[section.name] = replace(self, model=model, window=section.window or self.window)
        return configs

    def masked(self) -> dict[str, Any]:
        """The configuration as nested dictionaries for printing, with secrets masked."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        for name, keys in sections_of(plain).items():
            mask(kind_of(name), keys)
        return plain

    def secrets(self) -> set[str]:
        """All secrets, both in plain text and in the form in which addresses encode them. No log
        line may show a secret.
        """
        sections = sections_of(msgspec.to_builtins(self)).items()
        return {secret for name, keys in sections for secret in secrets(kind_of(name), keys)}

    def sections(self) -> dict[str, dict[str, Any]]:
        """A mapping for printing: from the name that messages use for a section, such as
        `stores.NAME`, to the section.
        """
        return sections_of(self.masked())


# Sections with a table per name, such as `[stores.NAME]`.
NAMED: dict[str, type[Section]] = {"stores": Store, "regions": Region}
# In these sections a key may stand beside the named tables. The value of such a key is the default
# for every table.
SHARING = frozenset({"regions"})
# Arrays of tables, such as `[[models]]`. Environment variables cannot set the keys of such tables.
TABLES: dict[str, type[Section]] = {
    "models": NamedModel,
    "routes": Route,
    "priorities": Priority,
}
SECTIONS: dict[str, type[Section]] = {
    name: kind
    for name, kind in get_type_hints(Config).items()
    if name not in NAMED and name not in TABLES and name != "region"
}


def kind_of(section: str) -> type[Section]:
    """The class of a section. `stores.NAME` has the class of `stores`, and `models[1]` the class of
    `models`.
    """
    if not section:
        return TopLevel
    return (SECTIONS | NAMED | TABLES)[re.split(r"[.\[]", section, maxsplit=1)[0]]


def sections_of(plain: dict[str, Any]) -> dict[str, dict[str, Any]]:
    sections: dict[str, dict[str, Any]] = {}
    for section, keys in plain.items():
        if section == "region":
            sections[""] = {section: keys}
        elif section in NAMED:
            sections |= {f"{section}.{key}": keys[key] for key in keys}
        elif section in TABLES:
            sections |= {f"{section}[{number}]": key for number, key in enumerate(keys, 1)}
        else:
            sections[section] = keys
    return sections
