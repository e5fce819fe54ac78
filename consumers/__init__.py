"""Penstock: references to objects in, ordered predictions out, nothing lost on the way.

    consume → download → expand → microbatch → predict → publish → reject → settle
     Kafka      S3        rows     window      TorchServe  Kafka     DLQ     offsets

Where to look:

    cli, commands/  what a person starts
    app, library    the only places that name concrete adapters: the worker, and `predict`
    pipeline        the life: start, rebalance, drain, stop; begin reading here
    wiring          the stages, made and joined in flow order
    lane            one assignment of one partition: what it owes and what may leave
    ports           the promises an adapter keeps; errors: the three families
    core/           decisions without waiting: blocks, ledger, cursor, order, window, pace, retry
    formats/        bytes to rows, push parsers
    stages/         one verb a file; the alphabet is the order of the flow
    adapters/       the only code that knows a client library
    handlers/       the TorchServe handler to deploy with a model
    embedded/       broker and model server of `penstock demo`
    services/       calling a service that may be ill: gate, outage, start, canary
    process/        children, ending with the parent, the heap, stopping
    verify/, dlq/   the judge of the topics; dead letters
    ops/            health page, status, produce, topics, several processes
    demo/, bench/   the job at home, with its proof; the measuring commands
    testing/        virtual time, for tests of your own

Imports go one way: cli → app → pipeline → lane, stages → core → schemas; adapters → ports. A test
holds it.
"""

from typing import Any

__all__ = ["predict"]


def __getattr__(name: str) -> Any:
    """`from consumers import predict`, loaded when asked for: the core must not pull in the
    clients.
    """
    if name == "predict":
        from consumers.library import predict

        return predict
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
