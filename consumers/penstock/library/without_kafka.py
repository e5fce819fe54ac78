"""Answers the rows of objects by the worker's own pipeline, without Kafka.

Rule: rows are answered in order, each once, the last ones although they fill no batch. If the
caller stops iterating, the pipeline stops.
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing
from functools import partial
from glob import has_magic
from typing import NamedTuple

from penstock import config
from penstock.adapters.inputs.left_out_objects import ExistingResults, of_shard
from penstock.adapters.inputs.urls import ReadAhead, ResultSink, UrlSource, references
from penstock.adapters.model_servers import request_forms
from penstock.adapters.model_servers.protocols import fitted_to_server, open_model
from penstock.adapters.result_stores.results import open_results
from penstock.adapters.stores.choice import open_objects, with_clouds
from penstock.adapters.stores.local_files import LocalObjects, local_path
from penstock.decoders.pool import Pool
from penstock.errors import first_cause, usage
from penstock.failures.outage import ask_store, until_answered
from penstock.library.model_and_shard import ALL, Share
from penstock.messages.reference import Reference
from penstock.pipeline.life import Pipeline
from penstock.pipeline.wiring import Wiring
from penstock.ports import Adapters
from penstock.process.asyncio_additions import SystemClock
from penstock.settings.results import results_for_call
from penstock.settings.worker import settings_for_call
from penstock.stages.result_objects import ResultTerms
from penstock.telemetry.worker import Telemetry


async def predict_lines(
    urls: Sequence[str],
    cfg: config.Config,
    model_name: str,
    output: str | None = None,
    on_listed: Callable[[int], object] = lambda objects: None,
    share: Share = ALL,
    memory: Mapping[str, str] = {},
) -> AsyncGenerator[list[bytes]]:
    """The same as `predict`, but yields lists of records as they become ready. The records are
    JSON, as on the output topic. `model_name`: the name that the model of `cfg.model` has in them.
    `output`: a URL like the setting `output.objects`; if it is given, the answers are written
    there, and each object has one record. `on_listed`: a function that is called with the number of
    objects found so far. `share`: tells which objects are answered. `memory`: for the URLs that
    name rows in memory, the files that have these rows.
    """
    if share.skip_existing and output is None:
        raise usage(
            "--skip-existing needs --output URL: a result object is the proof that an object is "
            "answered"
        )
    terms = (
        None
        if output is None
        else _result_terms(urls, output, model_name, cfg.results.nested, share)
    )
    if request_forms.find(cfg.model.request).single:
        cfg = await fitted_to_server(cfg)
    cfg = with_clouds(cfg)
    async with AsyncExitStack() as opened:
        call = _call(urls, cfg, model_name, output, terms, on_listed, share, memory, opened)
        await _until_answered(call, urls, cfg)
        running = asyncio.create_task(call.pipeline.run_until(call.ended.wait))
        try:
            async with aclosing(_until_done(call.sink.results, running)) as ready:
                async for lines in ready:
                    yield lines
        except BaseExceptionGroup as group:
            raise first_cause(group) from group
        finally:
            running.cancel()
            await asyncio.wait([running])


class _CallParts(NamedTuple):
    """The parts of a pipeline that answers one call. `named`: the references of the URLs. `ended`
    is set when all of them were read.
    """

    pipeline: Pipeline
    objects: LocalObjects
    sink: ResultSink
    named: ReadAhead
    ended: asyncio.Event


def _result_terms(
    urls: Sequence[str], output: str, model_name: str, nested: str, share: Share
) -> ResultTerms:
    return results_for_call(
        output,
        model_name,
        nested,
        by_key=share != ALL,
        is_one_bucket=len(set(map(_bucket_of, urls))) == 1,
        is_one_object=len(urls) == 1 and not has_magic(urls[0]),
    )


def _call(
    urls: Sequence[str],
    cfg: config.Config,
    model_name: str,
    output: str | None,
    terms: ResultTerms | None,
    on_listed: Callable[[int], object],
    share: Share,
    memory: Mapping[str, str],
    opened: AsyncExitStack,
) -> _CallParts:
    """Make the parts. `opened` gets all clients that are opened here, and closes them at the
    end.
    """
    results = None if output is None else open_results(cfg, output)
    if results is not None:
        opened.push_async_callback(results.aclose)
    objects = LocalObjects(partial(open_objects, cfg, lazily=True), memory)
    opened.push_async_callback(objects.aclose)
    model = open_model(cfg)
    opened.push_async_callback(model.aclose)
    telemetry, limits = Telemetry(), cfg.limits
    decoders = Pool(
        limits.decoders,
        limits.decode_ms_per_mib,
        telemetry.decoder_died,
        reuse=limits.decoder_reuse,
    )
    opened.push_async_callback(decoders.aclose)

    is_local = all(local_path(url) is not None for url in urls)
    settings = settings_for_call(cfg, model_name, model.version, results=terms, is_local=is_local)
    sink, clock, ended = ResultSink(cfg.output.topic), SystemClock(), asyncio.Event()
    named: AsyncIterator[Reference] = references(objects, urls, settings.intake.places)
    if share.shard is not None:
        named = of_shard(named, share.shard)
    if share.skip_existing and results is not None and terms is not None:
        intake = settings.intake
        existing = ExistingResults(results, terms.names, intake.stream_from, intake.places)
        named = existing.left_out(named, share.skipped)
    ahead = ReadAhead(_counted(named, on_listed))
    source = UrlSource(ahead.all(), ended.set, clock.wall_ms())
    adapters = Adapters(source, objects, model, sink, clock, results=results)
    pipeline = Pipeline(Wiring(settings, adapters, telemetry, decoders=decoders))
    return _CallParts(pipeline, objects, sink, ahead, ended)


async def _until_answered(call: _CallParts, urls: Sequence[str], cfg: config.Config) -> None:
    """If a URL names S3, wait until the store of `[objects]` answers. Then look at what the URLs
    name, and wait until the model answers.
    """
    clock, start_s = SystemClock(), cfg.limits.start_ms / 1000
    if any(url.startswith("s3") and local_path(url) is None for url in urls):
        ask = partial(ask_store, call.objects, cfg.objects.endpoint_url)
        await until_answered("object store", ask, clock, start_s)
    await call.named.look()
    await until_answered("model server", call.pipeline.wiring.main.calls.check, clock, start_s)


def _bucket_of(url: str) -> str:
    """The bucket of a URL. All local files count as one bucket."""
    return "" if local_path(url) is not None else url.partition("://")[2].partition("/")[0]


async def _counted(
    named: AsyncIterator[Reference], on_listed: Callable[[int], object]
) -> AsyncGenerator[Reference]:
    number = 0
    async for reference in named:
        number += 1
        on_listed(number)
        yield reference


async def _until_done(
    results: asyncio.Queue[list[bytes]], running: asyncio.Task[None]
) -> AsyncGenerator[list[bytes]]:
    """Yield the queue's items until the task ends. If the task failed, the items that came before
    are yielded first, and then its exception is raised.
    """
    while not running.done():
        getting = asyncio.create_task(results.get())
        await asyncio.wait([getting, running], return_when=asyncio.FIRST_COMPLETED)
        if getting.done():
            yield getting.result()
        else:
            getting.cancel()
    while not results.empty():
        yield results.get_nowait()
    running.result()
