"""Checks the stores: do they answer, can objects be read and results written, did killed workers
leave uploads?

Rule: nothing is written but one small object beside the results, which is removed.
"""

import asyncio
import secrets
import time
from contextlib import aclosing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from penstock import config
from penstock.adapters.http.server_time import server_time
from penstock.adapters.result_stores.results import leftovers_of, open_results
from penstock.adapters.stores.choice import open_objects, open_store, places_of_caller
from penstock.adapters.stores.local_files import LOCAL, LocalObjects, local_path
from penstock.adapters.stores.names import folder_of
from penstock.adapters.stores.refusals import NoBucket
from penstock.core.diagnosis.clocks import ahead_s
from penstock.core.diagnosis.diagnose import CLOCK_S
from penstock.core.records.result_names import Template, parsed
from penstock.core.routing.store_choice import DEFAULT, StoreChoice
from penstock.errors import PenstockError, Poison, usage
from penstock.failures.outage import ask_store
from penstock.messages.reference import SchemaError
from penstock.messages.urls import split_url
from penstock.ports import PROBE, Location
from penstock.tools.doctor.finding import Finding


async def look_at_default(cfg: config.Config) -> str:
    url = cfg.objects.endpoint_url
    async with aclosing(open_objects(cfg)) as objects:
        await ask_store(objects, url)
    place = config.shown_url(url) if url else "the place that its client takes by itself"
    return f"{place}; to see if an object is readable: penstock doctor s3://BUCKET/KEY"


async def look_at_clock(url: str, now: datetime) -> list[Finding]:
    """Compare our clock with the store's. If the two clocks are 15 minutes apart, the store refuses
    all signed requests.
    """
    begun_s = time.monotonic()
    theirs = await server_time(url)
    if theirs is None:
        return []
    asked_s = now.timestamp()
    answered_s = asked_s + time.monotonic() - begun_s
    apart_s = abs(ahead_s(asked_s, answered_s, theirs.timestamp()))
    if apart_s < CLOCK_S:
        return []
    message = (
        f"the clock of {config.shown_url(url)} and ours are {apart_s:.0f} s apart; from 900 s on "
        "it refuses us, and all latencies are wrong: look at both with timedatectl"
    )
    return [Finding("clock", "wrong", message)]


async def look_at_allowed(cfg: config.Config) -> list[Finding]:
    """Check that the default store has the buckets that `objects.allow` names."""
    names = sorted(
        {glob.partition("/")[0] for glob in cfg.objects.allow or () if "://" not in glob}
    )
    findings: list[Finding] = []
    async with aclosing(open_objects(cfg, lazily=True)) as objects:
        for bucket in names:
            if set("*?[") & set(bucket):
                continue
            try:
                await objects.part(place_of(cfg, f"s3://{bucket}/{PROBE.key}"), 0, 1)
            except NoBucket as error:
                message = f"objects.allow names it: {error}; correct the name, or make it"
                findings.append(Finding(f"bucket {bucket}", "wrong", message))
            except Poison as error:
                # Any other code says that there is no such object. That answer proves that the
                # bucket can be read.
                if error.code == "forbidden":
                    message = f"objects.allow names it, and its objects may not be read: {error}"
                    findings.append(Finding(f"bucket {bucket}", "mind", message))
    return findings


async def look_at_named(name: str, store: config.Store) -> str:
    async with aclosing(open_store(name, store)) as objects:
        folder = folder_of(store.url)
        if folder is not None and not await asyncio.to_thread(Path(folder).is_dir):
            raise usage(f"{folder} is not a folder; correct stores.{name}.url")
        await ask_store(objects, store.endpoint_url)
    return config.shown_url(store.url)


async def look_at_object(cfg: config.Config, url: str) -> str:
    location = place_of(cfg, url)
    async with aclosing(open_any(cfg)) as objects:
        part = await objects.part(location, 0, 1)
    return f"readable, {part.size:,} bytes"


def is_of_default(cfg: config.Config, url: str) -> bool:
    """True if the object is in the store of `[objects]`, so that nothing can be said of it if that
    store is away.
    """
    try:
        return local_path(url) is None and place_of(cfg, url).store == DEFAULT
    except PenstockError:  # the look at the object says what is wrong with the URL
        return False


def open_any(cfg: config.Config) -> LocalObjects:
    """Reads objects of the configured stores, and local files, which `penstock predict` may read
    without a store.
    """
    return LocalObjects(partial(open_objects, cfg, lazily=True))


def place_of(cfg: config.Config, url: str) -> Location:
    """The location of the object with this URL, or of a local file. Raises `Fatal` if the text is
    neither.
    """
    if (path := local_path(url)) is not None:
        return Location(LOCAL, str(Path(path).absolute()))
    try:
        named, bucket, key = split_url(url)
    except SchemaError as error:
        raise usage(str(error)) from None
    return Location(bucket, key, store=StoreChoice(places_of_caller(cfg)).of(named, bucket, key))


# An upload that was begun longer ago than this is a leftover, because no result takes a day.
LEFTOVER_S: Final = 86_400


async def look_at_results(cfg: config.Config, template: str) -> list[Finding]:
    try:
        names = parsed(template)
    except ValueError as error:
        raise usage(f"output.objects: {error}") from None
    if "{" in names.bucket:
        message = f"{template}; its bucket is found with the first result"
        return [Finding("results", "ok", message)]
    probe = Location(names.bucket, _probe_key(names))
    async with aclosing(open_results(cfg, template)) as results:
        kept = await results.try_write(probe)
    if kept is None:
        return [Finding("results", "ok", f"{template}; an object could be written and removed")]
    message = (
        f"{template}: an object could be written, but not removed: {kept}. A worker needs only to "
        f"write. Remove {probe.key} of {names.bucket or 'this machine'} by hand"
    )
    return [Finding("results", "mind", message)]


def _probe_key(names: Template) -> str:
    """A new key in the folder that all results share. It must be in this folder, because rights may
    differ from folder to folder.
    """
    folder = names.key.partition("{")[0].rpartition("/")
    return f"{folder[0]}{folder[1]}penstock-doctor-{secrets.token_hex(8)}"


async def look_at_leftovers(cfg: config.Config, template: str, now: datetime) -> list[Finding]:
    """Look for unfinished uploads of killed workers. No listing of objects shows such uploads, but
    their storage costs money.
    """
    leftovers = leftovers_of(cfg, template)
    if leftovers is None:
        return []
    bucket = parsed(template).bucket
    async with aclosing(leftovers):
        begun = await leftovers.begun(bucket) if "{" not in bucket else None
    old = [begun_at for begun_at in begun or () if (now - begun_at).total_seconds() > LEFTOVER_S]
    if not old:
        return []
    message = (
        f"{len(old):,} uploads were begun more than a day ago and never completed, the oldest on "
        f"{min(old):%Y-%m-%d}: give the bucket a rule that aborts incomplete multipart uploads "
        f"(aws s3api put-bucket-lifecycle-configuration --bucket {bucket})"
    )
    return [Finding(f"bucket {bucket}", "mind", message)]
