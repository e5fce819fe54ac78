"""Makes the configuration of the worker that replays from the live worker's.

Rule: what decides the content of an answer stays: formats, rows, requests, batches. A topic that
the live worker uses for answers, dead letters or scenes is refused.
"""

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from msgspec import structs

from penstock import config
from penstock.core.routing.model_routes import Routes
from penstock.core.window.priorities import ALL_BACKLOG, Priorities
from penstock.errors import usage
from penstock.library.model_and_shard import with_model
from penstock.pipeline.settings import ModelTerms, Settings
from penstock.settings.inputs import check_inputs

# With these limits a replay burdens the store and the model less than a worker does. They also
# bound how much work is still in progress when the live group falls behind.
FETCHERS = 4
IN_FLIGHT_OBJECTS = 16
BUFFER_BYTES = 64 * config.MIB
# A replay is in no hurry: it fetches five times a second, where a worker may fetch fifty times.
FETCH_WAIT_MS = 200
# The pattern of a replay's name. Kafka allows these characters in a topic's name. Kafka allows more
# characters in a group's name, but people must type the name.
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")

T = TypeVar("T", config.Objects, config.Store)


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The command's options. `since` and `until`: the texts that the user gave. `since_ms` and
    `until_ms`: the times that these texts mean. `against`: if several models answered, the name of
    the model whose former answers are compared. `protocol`: the protocol that the server of `model`
    speaks.
    """

    to: str
    since: str
    since_ms: int
    until: str | None = None
    until_ms: int | None = None
    model: str | None = None
    streams: tuple[str, ...] = ()
    name: str | None = None
    against: str | None = None
    protocol: str | None = None

    @property
    def named(self) -> str:
        return self.name or self.to

    @property
    def identity(self) -> dict[str, str]:
        """The options that must be the same when a replay is started again."""
        return {
            "--since": self.since,
            "--until": self.until or "",
            "--to": self.to,
            "--model": self.model or "",
            "--protocol": self.protocol or "",
            "--streams": " ".join(sorted(self.streams)),
        }


@dataclass(slots=True)
class Plan:
    """`cfg`: the configuration of the worker that replays. `live`: that of the live worker."""

    cfg: config.Config
    live: config.Config
    options: ReplayOptions
    model: str
    _streams: list[re.Pattern[str]] = field(init=False)

    def __post_init__(self) -> None:
        self._streams = [re.compile(fnmatch.translate(glob)) for glob in self.options.streams]

    def takes_of_then(self, stream: str, model: str) -> bool:
        """True if the former answers of this model in this stream are compared."""
        against = self.options.against
        if against is not None and model != against:
            return False
        return not self._streams or any(glob.match(stream) for glob in self._streams)

    @property
    def group(self) -> str:
        return self.cfg.kafka.group

    def settings(self, settings: Settings) -> Settings:
        """Change the settings for the worker that replays: all rows are backlog, and only the
        chosen streams are read.
        """
        only = self.options.model is not None
        return replace(
            settings,
            labels=replace(settings.labels, model=self.model),
            main=_all_backlog(settings.main),
            models={name: _all_backlog(terms) for name, terms in settings.models.items()},
            routes=Routes([self.model], (), overrule=True) if only else settings.routes,
            intake=replace(settings.intake, streams=self.options.streams or None),
        )


def plan(live: config.Config, options: ReplayOptions) -> Plan:
    """Make the plan of a replay. Raises `Fatal` (exit 2) if the topic is in use, or if the inputs,
    the range or the name are invalid.
    """
    check_inputs(live)
    if not _NAME.fullmatch(options.named):
        raise usage(f"--name {options.named!r}: letters, digits, dots, dashes and underscores")
    if options.until_ms is not None and options.until_ms <= options.since_ms:
        raise usage(f"--until {options.until} is not after --since {options.since}")
    cfg, model = _answering(live, options.model, options.protocol)
    output = structs.replace(
        cfg.output, topic=options.to, dlq_topic=None, objects=None, records="rows"
    )
    _check_topics(live, output)
    cfg = structs.replace(
        cfg,
        output=output,
        kafka=structs.replace(
            cfg.kafka,
            group=f"{cfg.kafka.group}.replay.{options.named}",
            instance_id=None,
            fetch_wait_ms=max(cfg.kafka.fetch_wait_ms or 0, FETCH_WAIT_MS),
        ),
    )
    return Plan(_modest(cfg), live, options, model)


def _answering(
    live: config.Config, name: str | None, protocol: str | None
) -> tuple[config.Config, str]:
    """Returns two things: a configuration without shadows that has only the models of this replay;
    and the name of its default model. `name`: the replay's only model, by its configured name, its
    URL, or its name on the server of `[model]`; None: the replay asks all configured models.
    """
    of_models, live = live.with_each_model(), live.without_shadow()
    if name is None:
        if protocol is not None:
            raise usage("--protocol says what the server of --model speaks; name that, too")
        return live, live.model.name
    resolved = structs.replace(live, models=[], routes=[])
    is_url = "://" in name
    if name in of_models:
        resolved = structs.replace(of_models[name], models=[], routes=[])
    elif not is_url and name != live.model.name:
        resolved = structs.replace(
            resolved, model=structs.replace(live.model, name=name, version=None)
        )
    resolved = with_model(resolved, name if is_url else None, protocol)
    return resolved, resolved.model.name if is_url else name


def _check_topics(live: config.Config, output: config.Output) -> None:
    """Raises `Fatal` for topics that the live configuration uses."""
    scenes = live.scenes
    used: Mapping[str, str] = {
        **dict.fromkeys(live.kafka.inputs, "an input topic"),
        scenes.input_topic: "what scenes are made of",
        scenes.topic: "the topic of scenes",
        scenes.late_topic: "the topic of late predictions",
        live.output.shadow_topic: "the topic of the shadow's answers",
        live.output.topic: "the live output topic",
        live.output.dead_letter_topic: "the live dead-letter topic",
    }
    for topic in (output.topic, output.dead_letter_topic):
        pattern = live.kafka.input_pattern
        what = used.get(topic)
        if what is None and pattern is not None and re.match(pattern, topic):
            what = f"an input topic by kafka.input_pattern ({pattern})"
        if what is not None:
            raise usage(f"--to {output.topic}: {topic} is {what}; name a topic of its own")


def _modest(cfg: config.Config) -> config.Config:
    """The configuration with lower limits, so that less work is taken at a time. Batches keep their
    size, so that answers stay the same.
    """
    limits = cfg.limits
    return structs.replace(
        cfg,
        objects=_fewer(cfg.objects),
        stores={name: _fewer(store) for name, store in cfg.stores.items()},
        window=_fair(cfg.window),
        model=structs.replace(cfg.model, max_in_flight=_half(cfg.model)),
        models=[
            structs.replace(
                model,
                max_in_flight=_half(model),
                window=_fair(model.window) if model.window is not None else None,
            )
            for model in cfg.models
        ],
        limits=structs.replace(
            limits,
            buffer_bytes=min(limits.buffer_bytes, BUFFER_BYTES),
            in_flight_objects=min(limits.in_flight_objects, IN_FLIGHT_OBJECTS),
        ),
    )


def _fewer(store: T) -> T:
    return structs.replace(store, concurrency=min(store.most_fetches, FETCHERS))


def _fair(window: config.Window) -> config.Window:
    """A fair window without a latency target. It must be fair, because only in a fair window can
    rows be backlog. It must have no target, because backlog waits deliberately, and from these
    waits the window would learn a wrong pace.
    """
    return structs.replace(window, fair=True, eager=False, target_p99_ms=0)


def _half(model: config.Model) -> int:
    return max(1, (model.begin_calls or model.most_calls) // 2)


def _all_backlog(terms: ModelTerms) -> ModelTerms:
    return replace(terms, window=replace(terms.window, priorities=Priorities(ALL_BACKLOG)))
