"""Penstock: references to objects in, ordered predictions out, nothing lost on the way.

    consume → download → expand → microbatch → predict → publish → reject → settle
     Kafka      S3        rows     window      TorchServe  Kafka     DLQ     offsets

Where to look, from what a person starts down to what everything rests on:

    cli, commands/  what a person types: parse, call one function, print
    worker/         `penstock run`: picks adapters, checks topics, turns signals into a drain
    library/        `predict` for Python programs: the pipeline without Kafka; results as tables
    settings/       from configuration to what the parts need: the one translator
    config/         every key with its default (sections); TOML, the environment, secrets
    pipeline/       the life: start, rebalance, drain, stop; begin reading here
    stages/         the verbs of the flow, a file each; beside them what helps one of them; shadow/
    lane/           one assignment of one partition: what it owes, what may leave
    calls/          calling a service that may be unavailable: gate, outage, start, probe
    formats/        bytes to rows
      base/         what all formats share: runs, members, reading by parts
      csv/, text/, tables/, archives/, media/, pictures/    the formats
    decoders/       processes with nothing to lose, in which objects become rows
    encodings/      answers to bytes of a result object, one file a format
    requests        what a batch looks like to a model
    plugins         formats and requests of users' packages
    adapters/       the only code that knows a client library
      inputs/       which input is read: topics, several regions, a bounded span, URLs
      kafka/        Kafka by aiokafka; in kafka/inside/ what aiokafka keeps to itself
        group/        what a member owes its group, for both clients
        exactly_once/ transactions as a member of the group, and positions that are decided
      confluent/    the input topic by librdkafka
      s3/, stores/  objects: S3; which client reads which store, and all other stores
      result_stores/  where result objects are written
      http/         our own connections, and which authorities TLS trusts
      model_servers/  TorchServe, the Open Inference Protocol, JSON servers
      otel/         spans of traces, by OpenTelemetry's SDK
      memory/       adapters that a test or a simulation owns
    ports/          the promises an adapter keeps
    core/           decisions without waiting, by question:
      rows/         what travels: blocks on the chain of their ticket
      progress/     how far may I commit?
      order/        what may leave, what comes next, when does a line stop?
      window/       when does a batch close?
      bad_rows/     whose fault was it?
      health/       may I ask again?
      records/      what is published, under which name?
      routing/      which model, which store, which stream?
      comparing/    do two models say the same?
    messages/       what crosses the wire, held against schemas/*.schema.json by a test
    errors          the three families: transient, poison, fatal; the exit codes
    telemetry/      metrics: of every worker; of several models, a shadow, regions
    tracing/        which objects are sampled, and the spans of their way
    logs            log lines, without secrets
    terminal_text   texts, times and tables for people, as several commands print them
    process/        our own processes: children, ending with the parent, leaving; clock, threads
    scenes/         one picture from many streams: what every member of a site said of one instant
    verify/, dlq/   the judge of the topics; dead letters
    jobs/           a job is a topic: a backlog announced from a list, and worked off to its end
    replay/         what was announced before, answered again beside the live group
    ops/            health page, status, several processes
    lint/           what is wrong in a configuration, all of it, without a service
    doctor/         what a worker needs, looked at one by one, with what mends it
    handlers/       the TorchServe handler to deploy with a model
    embedded/       broker and model server of `penstock demo`
    demo/, bench/   the job at home, with its proof; the measuring commands
    simulation/     virtual time and simulated failures, for tests of your own

Imports go one way: cli → commands → worker → settings → pipeline → stages → lane → core → messages;
adapters → ports. The configuration is read by the adapters and the commands' own folders, each its
section; the parts of the pipeline get plain values. A test holds all this and the map.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.library.predicting import predict, predict_sync
    from penstock.library.tables import Predictions, to_arrow, to_pandas, to_polars
    from penstock.messages.prediction import Prediction

__all__ = [
    "PenstockError",
    "Prediction",
    "Predictions",
    "predict",
    "predict_sync",
    "to_arrow",
    "to_pandas",
    "to_polars",
]


def __getattr__(name: str) -> Any:
    """`from penstock import predict`, loaded when asked for: the core must not pull
    in the clients.
    """
    if name in ("predict", "predict_sync"):
        from penstock.library import predicting

        return getattr(predicting, name)
    if name == "Prediction":
        from penstock.messages import prediction

        return prediction.Prediction
    if name == "PenstockError":
        from penstock import errors

        return errors.PenstockError
    if name in __all__:
        from penstock.library import tables

        return getattr(tables, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Names that are not loaded yet are completed by a notebook, too."""
    return sorted({*globals(), *__all__})
