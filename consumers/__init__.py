"""Penstock: references to objects in, ordered predictions out, nothing lost on the way.

    consume → download → expand → microbatch → predict → publish → reject → settle
     Kafka      S3        rows     window      TorchServe  Kafka     DLQ     offsets

Where to look, from what a person starts down to what everything rests on:

    cli, commands/  what a person types: parse, call one function, print
    app             the worker: picks the adapters, checks the topics, turns signals into a drain
    library         `predict` for Python programs: the same pipeline without Kafka
    results         what `predict` returned, as a table
    settings        from configuration to what the parts need: the one translator
    input_settings  the part of it that says what is read, and from where
    row_settings    the part of it that says what a row is
    result_settings  the part of it that says how answers are written
    routing         which of several models answers what, as it is configured
    config/         every key with its default (sections); TOML and the environment (loading)
    variables       `PENSTOCK_SECTION__KEY` as a value of the kind that the key takes
    pipeline        the life: start, rebalance, drain, stop; begin reading here
    wiring          the stages, made and joined in flow order
    track           one model's own part of it: fetchers, window, calls
    takeover        a partition that comes: fence, read the position, seek, work
    watchdog        a partition that owes answers and shows no sign of life ends the worker
    stages/         the verbs of the flow, a file each; beside them what helps one of them
    lane            one assignment of one partition: what it owes and what may leave
    dedupe          an object that is announced again
    services/       calling a service that may be ill: gate, outage, start, canary
    formats/        bytes to rows, push parsers, one file a format
    decoders/       processes with nothing to lose, in which objects become rows
    encodings/      answers to bytes of a result object, one file a format
    requests        what a batch looks like to a model
    plugins         formats and requests of users' packages
    adapters/       the only code that knows a client library
    ports/          the promises an adapter keeps
    core/           decisions without waiting: blocks, ledger, cursor, order, window, pace, retry
    errors          the three families: transient, poison, fatal; the exit codes
    budget, clock   the bytes that may be held; the time
    threads         work off the event loop
    telemetry/      metrics: of every worker; of several models, a shadow, regions
    logs, shown     log lines, without secrets; texts, times and agreement on a terminal
    scenes/         one picture from many streams: what every member of a site said of one instant
    verify/, dlq/   the judge of the topics; dead letters
    replay/         what was announced before, answered again beside the live group
    ops/            health page, status, produce, several processes
    process/        children, ending with the parent, the heap, signals, leaving
    handlers/       the TorchServe handler to deploy with a model
    embedded/       broker and model server of `penstock demo`
    demo/, bench/   the job at home, with its proof; the measuring commands
    testing/        virtual time and simulated failures, for tests of your own

Imports go one way: cli → commands → app → pipeline → wiring → track → stages → lane → core →
schemas; adapters → ports. The configuration is read by the adapters and the commands' own folders,
each its section; the parts of the pipeline get plain values. A test holds all this and the map.
"""

from typing import Any

__all__ = ["Predictions", "predict", "predict_sync", "to_arrow", "to_pandas"]


def __getattr__(name: str) -> Any:
    """`from consumers import predict`, loaded when asked for: the core must not pull
    in the clients.
    """
    if name in ("predict", "predict_sync"):
        from consumers import library

        return getattr(library, name)
    if name in __all__:
        from consumers import results

        return getattr(results, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
