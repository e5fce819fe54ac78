"""Runs the doctor's checks one after the other; those of the machine and of what a broker says of
itself are in this file.

Rule: the checks ask the services what a worker asks at its start, by the same code, and the worker
at this configuration's address, because only a running one knows the state of its streams. They
change nothing, but write a small object beside the results and remove it; with `fix`, missing
topics are created.

At a distance the median of requests one after the other counts: by Little's law `n` at a time to a
service that takes `t` seconds are `n / t` a second, and no setting permits more. A question for a
partition's end stands for a write.
"""

import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from penstock import config
from penstock.adapters.http.running_worker import status_of, url_of
from penstock.adapters.kafka.exactly_once.transactions import TRANSACTION_TIMEOUT_S
from penstock.adapters.kafka.positions_from_outside import open_groups
from penstock.adapters.kafka.topics import BrokerWords, broker_words
from penstock.adapters.model_servers.protocols import each_endpoint, open_model
from penstock.adapters.stores.choice import open_objects
from penstock.adapters.stores.local_files import local_path
from penstock.core.diagnosis.problem import BAD, sentences
from penstock.core.progress.cursor import MAX_CHARS
from penstock.decoders.bounds import missing
from penstock.errors import Poison
from penstock.ports import Where
from penstock.settings.worker import most_open_files
from penstock.tools.doctor.finding import Finding, hurried, run_check, run_checks
from penstock.tools.doctor.models_and_routes import (
    first_row,
    look_at_limits,
    look_at_model,
    look_at_routes,
    model_of,
    try_first_row,
)
from penstock.tools.doctor.stores import (
    is_of_default,
    look_at_allowed,
    look_at_clock,
    look_at_default,
    look_at_leftovers,
    look_at_named,
    look_at_object,
    look_at_results,
    place_of,
)
from penstock.tools.doctor.topics import look_at_group, look_at_progress, look_at_topics

# The first request of a connection opens it, and is not counted.
TRIES: Final = 7
# The rate of the streams in docs/performance.md.
HZ: Final = 20


async def look_at_distance(cfg: config.Config, url: str) -> str:
    """`url`: an object that can be read and whose first row the model answers."""
    location = place_of(cfg, url)
    chosen = model_of(cfg, location)[1]
    async with aclosing(open_objects(cfg, lazily=True)) as objects:
        store_s = await _median_s(lambda: objects.part(location, 0, 1))
    row = await first_row(chosen, location)
    async with aclosing(open_model(chosen)) as model:
        model_s = await _median_s(lambda: model.predict([row]))
    kafka = hurried(cfg.kafka)
    async with open_groups(kafka, kafka.isolation) as groups:
        kafka_s = await _median_s(lambda: groups.ends([Where(cfg.output.topic, 0)]))
    return permitted(chosen, store_s, model_s, kafka_s)


async def _median_s(ask: Callable[[], Awaitable[object]]) -> float:
    took_s = []
    for _ in range(TRIES + 1):
        begun_s = time.perf_counter()
        with suppress(Poison):  # a refusal is an answer, and took its time
            await ask()
        took_s.append(time.perf_counter() - begun_s)
    return statistics.median(took_s[1:])


def permitted(cfg: config.Config, store_s: float, model_s: float, kafka_s: float) -> str:
    reads, calls, rows = cfg.objects.most_fetches, cfg.model.most_calls, cfg.window.max_rows
    objects_per_s, rows_per_s = reads / store_s, calls * rows / model_s
    least_ms = 1000 * (store_s + model_s + 2 * kafka_s)
    return (
        f"a read takes {1000 * store_s:.3g} ms, a call with one row {1000 * model_s:.3g} ms, a "
        f"question to Kafka {1000 * kafka_s:.3g} ms (medians of {TRIES}): an object is answered "
        f"after {least_ms:,.0f} ms or more. {reads} reads and {calls} calls of {rows} rows at a "
        f"time permit {objects_per_s:,.0f} objects a second (small ones of "
        f"{objects_per_s / HZ:,.0f} streams at {HZ} Hz) and {rows_per_s:,.0f} rows a second, if "
        "store, model and this machine bear it; penstock bench streams measures what the machine "
        "bears at this distance"
    )


async def examine(cfg: config.Config, urls: Sequence[str], *, fix: bool) -> AsyncIterator[Finding]:
    """Run the checks one after the other, and yield their findings. `urls`: the URLs of objects
    that a worker should be able to read.
    """
    for finding in look_at_machine(cfg, limits_here()):
        yield finding
    for finding in await run_checks("worker", partial(look_at_worker, cfg)):
        yield finding
    for finding in await run_checks("broker", partial(look_at_brokers, cfg)):
        yield finding
    are_there = True
    for finding in await run_checks("topics", partial(look_at_topics, cfg, fix=fix)):
        are_there = are_there and finding.is_well
        yield finding
    if are_there:
        for finding in await run_checks("progress", partial(look_at_progress, cfg)):
            yield finding
        for finding in await run_checks("group", partial(look_at_group, cfg)):
            yield finding
    readable: list[str] = []
    async for finding in _stores(cfg, urls):
        readable += [finding.what] if finding.what in urls and finding.is_well else []
        yield finding
    for name, each in {"": cfg, **cfg.with_each_model()}.items():
        suffix = f" {name}" if name else ""
        for one_server in each_endpoint(each).values():
            model = await run_check(f"model{suffix}", partial(look_at_model, one_server))
            yield model
            if model.is_well:
                yield await run_check(f"limits{suffix}", partial(look_at_limits, one_server))
    if cfg.routes:
        for finding in await run_checks("routes", partial(look_at_routes, cfg.after_rekey())):
            yield finding
    answered: list[str] = []
    for url in readable:
        tried = await run_check(f"first row of {url}", partial(try_first_row, cfg, url))
        # A local file is not as far away as the store.
        answered += [url] if tried.is_well and local_path(url) is None else []
        yield tried
    if answered and are_there:
        yield await run_check("distance", partial(look_at_distance, cfg, answered[0]))


async def _stores(cfg: config.Config, urls: Sequence[str]) -> AsyncIterator[Finding]:
    endpoint = cfg.objects.endpoint_url
    store = await run_check("store", partial(look_at_default, cfg))
    yield store
    now = datetime.now(UTC)  # read after the first check, which may take seconds
    if endpoint is not None and endpoint.startswith("http"):
        for finding in await run_checks("clock", partial(look_at_clock, endpoint, now)):
            yield finding
    if store.is_well:
        for finding in await run_checks("buckets", partial(look_at_allowed, cfg)):
            yield finding
    for url in urls:
        if store.is_well or not is_of_default(cfg, url):
            yield await run_check(url, partial(look_at_object, cfg, url))
        else:
            message = f"it could not be looked at, as its store is not well: {store.said}"
            yield Finding(url, "wrong", message)
    for name in cfg.stores:
        look = partial(look_at_named, name, cfg.stores[name])
        yield await run_check(f"stores.{name}", look)
    if cfg.output.objects is not None:
        template, are_well = cfg.output.objects, True
        for finding in await run_checks("results", partial(look_at_results, cfg, template)):
            are_well = are_well and finding.is_well
            yield finding
        if are_well:
            look_back = partial(look_at_leftovers, cfg, template, now)
            for finding in await run_checks("results", look_back):
                yield finding


async def look_at_worker(cfg: config.Config) -> list[Finding]:
    """The problems that the running worker reports. They are the same as on the worker's page."""
    if not cfg.http.port:
        return []
    url = url_of(cfg.http)
    status = await status_of(cfg.http)
    if status is None and (scenes := await status_of(cfg.http, is_of_scenes=True)) is not None:
        lost = [f"site {site['site']}: {site['lost']}" for site in scenes["sites"] if site["lost"]]
        if scenes["lost"]:
            lost.insert(0, scenes["lost"])
        return [Finding("scenes", "mind", text) for text in lost] or [
            Finding("scenes", "ok", f"the worker at {url} says that all is well")
        ]
    if status is None:
        message = f"none runs at {url} (http.host, http.port); one that does is asked how it is"
        return [Finding("worker", "ok", message)]
    return [
        Finding(
            "worker",
            "wrong" if problem["level"] == BAD else "mind",
            sentences(problem["what"], problem["do"]),
        )
        for problem in status["problems"]
    ] or [Finding("worker", "ok", f"the one at {url} says that all is well")]


# The number of files that a worker opens in addition to those of fetches and calls: for connections
# to Kafka's brokers, for the page and its viewers, for decoders, logs and libraries.
OTHER_FILES: Final = 100
# The memory that a worker needs in addition to its buffer: for the interpreter, the libraries, the
# clients' buffers, and a decoder at work.
BASE_BYTES: Final = 300 * config.MIB
_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")


_UNCONFINED: Final = (
    "this system cannot keep them from {}, so an object that takes one over could do it: "
    "docs/formats.md, what a decoder may do"
)


class MachineLimits(NamedTuple):
    """The limits of this process; None: there is no limit. `unconfined`: what the system cannot
    keep decoders from.
    """

    files: int | None
    memory_bytes: int | None
    unconfined: Sequence[str] = ()


def limits_here() -> MachineLimits:
    text = _CGROUP.read_text().strip() if _CGROUP.is_file() else "max"
    return MachineLimits(most_open_files(), int(text) if text.isdecimal() else None, missing())


def look_at_machine(cfg: config.Config, limits: MachineLimits) -> list[Finding]:
    wrong = [*_files(cfg, limits.files), *_memory(cfg, limits.memory_bytes)]
    wrong += [Finding("decoders", "mind", _UNCONFINED.format(what)) for what in limits.unconfined]
    return wrong or [
        Finding("machine", "ok", "it has files, memory and all protections of the decoders")
    ]


def _files(cfg: config.Config, most: int | None) -> Iterator[Finding]:
    fetches = sum(store.fetches_within(most) for store in (cfg.objects, *cfg.stores.values()))
    calls = cfg.model.most_calls + sum(model.most_calls for model in cfg.models)
    needed = fetches + calls + OTHER_FILES
    if most is not None and most < needed:
        yield Finding(
            "open files",
            "wrong",
            f"the limit is {most:,}; {fetches} fetches, {calls} calls and the rest may need "
            f"{needed:,}: ulimit -n {2 * needed}, or lower objects.most_concurrency",
        )


def _memory(cfg: config.Config, most: int | None) -> Iterator[Finding]:
    needed = cfg.limits.buffer_bytes + BASE_BYTES
    if most is not None and most < needed:
        mib = config.MIB
        yield Finding(
            "memory",
            "wrong",
            f"the limit is {most // mib:,} MiB; limits.buffer_bytes and the worker itself may need "
            f"{needed // mib:,}: raise the limit, or lower limits.buffer_bytes",
        )


METADATA: Final = "offset.metadata.max.bytes"
TRANSACTION: Final = "transaction.max.timeout.ms"
LEAST_SESSION: Final = "group.min.session.timeout.ms"
MOST_SESSION: Final = "group.max.session.timeout.ms"
SETTINGS: Final = (METADATA, TRANSACTION, LEAST_SESSION, MOST_SESSION)
# The numbers of requests: JoinGroup; InitProducerId, which gives a producer its number; and those
# by which a transaction takes records and positions and ends.
_JOIN: Final = 11
_PRODUCER: Final = 22
_TRANSACTIONS: Final = frozenset({24, 25, 26, 28})


async def look_at_brokers(cfg: config.Config) -> list[Finding]:
    words = await broker_words(hurried(cfg.kafka), SETTINGS)
    untold = [name for name in SETTINGS if name not in words.settings]
    message = f"it does not tell us {', '.join(untold)}" if untold else "its limits fit this worker"
    return judge_broker(cfg, words) or [Finding("broker", "ok", message)]


def judge_broker(cfg: config.Config, words: BrokerWords) -> list[Finding]:
    wrong = [*_metadata(words), *_transactions(cfg, words), *_group(cfg, words)]
    return [Finding("broker", "wrong", reason) for reason in wrong]


def _limit(words: BrokerWords, name: str) -> int | None:
    setting = words.settings.get(name)
    return None if setting is None else int(setting)


def _metadata(words: BrokerWords) -> Iterator[str]:
    most = _limit(words, METADATA)
    if most is not None and most < MAX_CHARS:
        yield (
            f"its {METADATA} is {most:,}, but a worker's place in a large object may take "
            f"{MAX_CHARS:,}, and a commit that is refused ends the worker; set it to 4096, its "
            "default, or more"
        )


def _transactions(cfg: config.Config, words: BrokerWords) -> Iterator[str]:
    if _PRODUCER not in words.requests:
        yield "it knows no idempotent producers (Kafka 0.11), without which no answer is written"
    if cfg.delivery.guarantee != "exactly_once":
        return
    if not words.requests >= _TRANSACTIONS:
        yield 'it knows no transactions; set delivery.guarantee = "at_least_once"'
    most_ms, ours_ms = _limit(words, TRANSACTION), int(TRANSACTION_TIMEOUT_S * 1000)
    if most_ms is not None and most_ms < ours_ms:
        yield (
            f"its {TRANSACTION} is {most_ms:,}, but a worker's transactions may last "
            f'{ours_ms:,} ms; raise it, or set delivery.guarantee = "at_least_once"'
        )


def _group(cfg: config.Config, words: BrokerWords) -> Iterator[str]:
    if cfg.kafka.group_protocol != "classic":
        return  # its terms are looked at with the group
    if _JOIN not in words.requests:
        yield (
            "it knows only the new protocol of groups (KIP-848); set "
            'kafka.client = "confluent" and kafka.group_protocol = "consumer"'
        )
    least_ms, most_ms = _limit(words, LEAST_SESSION), _limit(words, MOST_SESSION)
    for name, is_outside in (
        (LEAST_SESSION, least_ms is not None and cfg.kafka.session_ms < least_ms),
        (MOST_SESSION, most_ms is not None and cfg.kafka.session_ms > most_ms),
    ):
        if is_outside:
            yield (
                f"its {name} is {words.settings[name]}, so it refuses a member with "
                f"kafka.session_ms = {cfg.kafka.session_ms}; change one of them"
            )
