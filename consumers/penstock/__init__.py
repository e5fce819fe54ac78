"""Penstock: references to objects in, ordered predictions out, nothing lost on the way.

    consume → download → expand → microbatch → predict → publish → reject → settle
     Kafka      S3        rows     window      TorchServe  Kafka     DLQ     offsets

Where to look. Each part rests on those below it:

    cli, commands/  the commands: parse, call one function, print
    worker/         `penstock run`: picks adapters, checks topics, turns signals into a drain
    plugins, testing  all that other programs may import beside `penstock` itself
    library/        `predict` for Python programs: the pipeline without Kafka; results as tables
    settings/       translates the configuration into what each part needs
    config/         every key with its default (sections); TOML, the environment, secrets
    pipeline/       a worker's life: start, rebalance, drain, stop; begin reading here
    stages/         a file for each step of the flow, and files that help one step
    lane/           one assignment of one partition: which answers it owes, which may be published
    asking/         the model behind one door, `Asker.answer`: gate, probes, health, bad rows
    failures/       what any stage may meet: services that are away, exceptions nobody foresaw
    formats/        bytes to rows: what all formats share, and which one an object has
      text/, tables/, archives/, media/, pictures/    the formats
    decoders/       processes without partitions or credentials, in which objects become rows
    encodings/      answers to the bytes of a result object, in each format; Arrow blocks
    packages        formats and requests of users' packages; the libraries of extras
    adapters/       the only code that knows a client library
      inputs/       which input is read: topics, several regions, a bounded span, URLs
      kafka/        Kafka by aiokafka; kafka/inside/ uses parts of it that are not public
        group/        what a member of a group must do, for both clients
        exactly_once/ transactions of a member of the group; aborts those left open
      confluent/    the input topic by librdkafka
      s3/, stores/  reading objects from S3 and from all other stores; the choice of the client
      result_stores/  writing result objects
      http/         our own connections, which authorities TLS trusts, what running workers say
      model_servers/  TorchServe, the Open Inference Protocol, JSON servers; the forms of requests
      otel/         spans of traces, by OpenTelemetry's SDK
      memory        adapters without a service, for tests and the simulation
    ports/          the promises that an adapter keeps
    core/           decisions without waiting, by question:
      rows/         what travels: blocks on the chain of their ticket
      progress/     what of a partition may be fetched, published, committed; when does it stop?
      window/       when does a batch close?
      bad_rows/     which row made the model refuse a batch?
      diagnosis/    what is wrong with a worker, why, and what to do?
      health/       may a service be asked again?
      records/      what is published, under which name?
      routing/      which model, which store, which stream?
      comparing/    do two models answer alike?
    messages/       the messages on topics and pages; a test holds them against schemas/
    errors          the three families: transient, poison, fatal; the exit codes
    telemetry/      metrics: of every worker; of several models, a shadow, regions
    tracing         which objects are sampled, and the spans of their way
    logs            log lines, without secrets
    terminal_text   texts, times, tables and progress bars for people
    process/        our own processes: children, signals, the end; clock, additions to asyncio
    scenes/         one picture from many streams: the predictions of a site's members at an instant
    ops/            health page, status, several processes
    tools/          what a person uses beside the worker; no part of the worker imports it
      demo/, bench/   `penstock demo`, with its proof; `penstock bench`, which measures
      doctor/, lint   checks all that a worker needs; finds a configuration's errors by itself
      verify/, dlq/   the judge of the topics; dead letters
      jobs/         a backlog that is announced from a list and worked off to its end
      replay/       answers again what was announced before, beside the live group
      handlers/     the TorchServe handler to deploy with a model
      embedded/     broker and model server of `penstock demo`
      simulation/   virtual time and simulated failures, for tests of your own

Imports go one way: cli → commands → worker → settings → pipeline → stages → lane → core → messages;
adapters → ports. The adapters and the folders of single commands read their sections of the
configuration; the parts of the pipeline get plain values: a stage its terms, a part of the core
its limits, a format its options. A test checks this and the map.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.library.python_api import (
        Predictions,
        predict,
        predict_sync,
        to_arrow,
        to_pandas,
        to_polars,
    )
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
    """Import a public name when it is first used, because `import penstock` alone must load no
    client.
    """
    if name == "Prediction":
        from penstock.messages import prediction

        return prediction.Prediction
    if name == "PenstockError":
        from penstock import errors

        return errors.PenstockError
    if name in __all__:
        from penstock.library import python_api

        return getattr(python_api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List also the names that are not imported yet, so that a notebook can complete them."""
    return sorted({*globals(), *__all__})
