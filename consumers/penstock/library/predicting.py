"""`predict` for Python programs: the pipeline without Kafka.

Rule: an object's rows are answered in order, each once, also those of the last incomplete batch. A
caller that stops iterating stops the pipeline. Owner: the caller's task.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from glob import has_magic
from threading import Thread
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from penstock import config, requests
from penstock.adapters.inputs.urls import ResultSink, UrlSource, references
from penstock.adapters.model_servers.choice import fitted_to_server, open_model
from penstock.adapters.result_stores.choice import open_results
from penstock.adapters.stores.choice import open_objects, with_clouds
from penstock.adapters.stores.files_and_stdin import LocalObjects, local_path
from penstock.calls.wait_for_services import ask_store, until_answered
from penstock.config.variables import nearest
from penstock.decoders.pool import Pool
from penstock.errors import EXIT_USAGE, Fatal, first_cause
from penstock.library.tables import Predictions
from penstock.messages.prediction import Prediction
from penstock.messages.reference import Reference
from penstock.pipeline.life import Pipeline
from penstock.pipeline.until import run_until
from penstock.pipeline.wiring import Wiring
from penstock.ports import Adapters
from penstock.process.clock import SystemClock
from penstock.settings.results import results_for_call
from penstock.settings.worker import for_call
from penstock.stages.result_objects import ResultPlan
from penstock.telemetry.worker import Telemetry


async def predict(
    *urls: str,
    model: str | None = None,
    request: str | None = None,
    cfg: config.Config | None = None,
) -> AsyncGenerator[Prediction]:
    """Predictions for every row of the objects that `urls` name, in order: `s3://...`, local paths
    and `file://...`, globs of both, and `-` for standard input.

    `model` is a TorchServe URL, `http://host:port/predictions/NAME[/VERSION]`, or the name of a
    configured model (`[model]`, `[[models]]`). `request` is one of `json`, `instances`, `float32`,
    `bytes`, `raw`, `arrow`. Everything else comes from `cfg`, or from the environment
    (`PENSTOCK_...`). A rejected row has `error` set. Raises `Fatal` for wrong settings; closing the
    iterator early stops the work.
    """
    settings = cfg or config.load()
    decoder = msgspec.json.Decoder(Prediction)
    async with aclosing(predict_lines(urls, *chosen(settings, model, request))) as found:
        async for lines in found:
            for line in lines:
                yield decoder.decode(line)


def predict_sync(
    *urls: str,
    model: str | None = None,
    request: str | None = None,
    cfg: config.Config | None = None,
) -> Predictions:
    """As `predict`, but returns all results in a list with `to_arrow()` and `to_pandas()`. It runs
    in a thread of its own, as a notebook's thread has a running event loop already.
    """
    found = Predictions()
    failed: list[BaseException] = []

    async def collect() -> None:
        async with aclosing(predict(*urls, model=model, request=request, cfg=cfg)) as results:
            async for result in results:
                found.append(result)

    def work() -> None:
        try:
            asyncio.run(collect())
        except BaseException as error:  # raised in the caller's thread
            failed.append(error)

    thread = Thread(target=work, name="predict_sync", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found


def with_model(cfg: config.Config, url: str | None, request: str | None) -> config.Config:
    """The configuration with the model of a full predictions URL."""
    changes: dict[str, object] = {"request": request} if request else {}
    if url:
        parts = urlsplit(url)
        path = [part for part in parts.path.split("/") if part]
        if path[:1] != ["predictions"] or len(path) not in (2, 3):
            raise Fatal(
                f"{url} is not a model URL; write http://host:port/predictions/NAME",
                exit_code=EXIT_USAGE,
            )
        changes |= {"url": f"{parts.scheme}://{parts.netloc}", "name": path[1], "replicas": None}
        changes["version"] = path[2] if len(path) == 3 else None
    tree = msgspec.to_builtins(cfg)
    tree["model"] |= changes
    try:
        return msgspec.convert(tree, config.Config)
    except msgspec.ValidationError as error:
        raise Fatal(f"model settings: {error}", exit_code=EXIT_USAGE) from None


def chosen(cfg: config.Config, model: str | None, request: str | None) -> tuple[config.Config, str]:
    """The configuration with the chosen model, and the model's name in records. It is the model of
    a full predictions URL, the configured one of that name, or the default one.
    """
    if model is None or "://" in model:
        found = with_model(cfg, model, request)
        return found, found.model.name
    named = {cfg.model.name: cfg, **cfg.with_each_model()}
    if model not in named:
        raise Fatal(
            f"there is no model {model!r}{nearest(model, named)}; name one of "
            f"{', '.join(named)}, or write http://host:port/predictions/NAME",
            exit_code=EXIT_USAGE,
        )
    return with_model(named[model], None, request), model


async def predict_lines(
    urls: Sequence[str],
    cfg: config.Config,
    model_name: str,
    output: str | None = None,
    found: Callable[[int], object] = lambda objects: None,
) -> AsyncGenerator[list[bytes]]:
    """As `predict`, but yields records of the output topic (JSON), in lists as they become ready.
    In the records the model of `cfg.model` is called `model_name`. With `output`, a URL like
    `output.objects`, the answers are written there and each object has one record. `found` is
    called with the number of objects found so far.
    """
    plan = None if output is None else _plan(urls, output, model_name)
    if requests.find(cfg.model.request).single:
        cfg = await fitted_to_server(cfg)
    cfg = with_clouds(cfg)
    async with AsyncExitStack() as opened:
        call = _call(urls, cfg, model_name, output, plan, found, opened)
        await _until_answered(call, urls, cfg)
        running = asyncio.create_task(run_until(call.pipeline, call.ended))
        try:
            async with aclosing(_until_done(call.sink.results, running)) as ready:
                async for lines in ready:
                    yield lines
        except BaseExceptionGroup as group:
            raise first_cause(group) from group
        finally:
            running.cancel()
            await asyncio.wait([running])


class _Call(NamedTuple):
    """The parts that answer one call. `ended`: all objects that the URLs name have been read."""

    pipeline: Pipeline
    objects: LocalObjects
    sink: ResultSink
    ended: asyncio.Event


def _plan(urls: Sequence[str], output: str, model_name: str) -> ResultPlan:
    return results_for_call(
        output,
        model_name,
        is_one_bucket=len(set(map(_bucket_of, urls))) == 1,
        is_one_object=len(urls) == 1 and not has_magic(urls[0]),
    )


def _call(
    urls: Sequence[str],
    cfg: config.Config,
    model_name: str,
    output: str | None,
    plan: ResultPlan | None,
    found: Callable[[int], object],
    opened: AsyncExitStack,
) -> _Call:
    """Make the parts; `opened` closes all clients that are opened here, in reverse order."""
    results = None if output is None else open_results(cfg, output)
    if results is not None:
        opened.push_async_callback(results.aclose)
    objects = LocalObjects(partial(open_objects, cfg, lazily=True))
    opened.push_async_callback(objects.aclose)
    model = open_model(cfg)
    opened.push_async_callback(model.aclose)
    telemetry, limits = Telemetry(), cfg.limits
    decoders = Pool(limits.decoders, limits.decode_ms_per_mib, telemetry.decoder_died)
    opened.push_async_callback(decoders.aclose)

    settings = for_call(cfg, model_name, model.version, results=plan)
    sink, clock, ended = ResultSink(cfg.output.topic), SystemClock(), asyncio.Event()
    named = _counted(references(objects, urls, settings.intake.places), found)
    source = UrlSource(named, ended.set, clock.wall_ms())
    adapters = Adapters(source, objects, model, sink, clock, results=results)
    pipeline = Pipeline(Wiring(settings, adapters, telemetry, decoders=decoders))
    return _Call(pipeline, objects, sink, ended)


async def _until_answered(call: _Call, urls: Sequence[str], cfg: config.Config) -> None:
    """Wait for the model to answer, and for the store if any object is in one."""
    clock, start_s = SystemClock(), cfg.limits.start_ms / 1000
    if any(url.startswith("s3") and local_path(url) is None for url in urls):
        ask = partial(ask_store, call.objects, cfg.objects.endpoint_url)
        await until_answered("object store", ask, clock, start_s)
    await until_answered("model server", call.pipeline.wiring.main.calls.check, clock, start_s)


def _bucket_of(url: str) -> str:
    """The bucket of a URL; local files have one as well."""
    return "" if local_path(url) is not None else url.partition("://")[2].partition("/")[0]


async def _counted(
    named: AsyncIterator[Reference], found: Callable[[int], object]
) -> AsyncGenerator[Reference]:
    number = 0
    async for reference in named:
        number += 1
        found(number)
        yield reference


async def _until_done(
    results: asyncio.Queue[list[bytes]], running: asyncio.Task[None]
) -> AsyncGenerator[list[bytes]]:
    """Yield the queue's items until the task ends. Its failure is raised after the items that came
    before it.
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
