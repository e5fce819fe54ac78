"""Checks that the stores answer, and that their objects can be read.

Rule: nothing is written. Owner: `examine`.
"""

import asyncio
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Final

from penstock import config
from penstock.adapters.http.server_clock import time_of
from penstock.adapters.stores.choice import open_objects, open_store, places_of_caller
from penstock.adapters.stores.names import folder_of
from penstock.adapters.stores.refusals import NoBucket
from penstock.calls.wait_for_services import PROBE, ask_store
from penstock.core.routing.store_choice import StoreChoice
from penstock.doctor.finding import Finding
from penstock.errors import Poison, usage
from penstock.messages.reference import SchemaError
from penstock.messages.urls import split_url
from penstock.ports import Location

CLOCK_S: Final = 5.0


async def look_at_default(cfg: config.Config) -> str:
    url = cfg.objects.endpoint_url
    async with aclosing(open_objects(cfg)) as objects:
        await ask_store(objects, url)
    place = config.shown_url(url) if url else "the place that its client takes by itself"
    return f"{place}; to see if an object is readable: penstock doctor s3://BUCKET/KEY"


async def look_at_clock(url: str, now: datetime) -> list[Finding]:
    """Compare our clock with the store's. If the two are 15 minutes apart, the store refuses all
    signed requests.
    """
    theirs = await time_of(url)
    apart_s = abs((theirs - now).total_seconds()) if theirs is not None else 0.0
    if apart_s < CLOCK_S:
        return []
    said = (
        f"the clock of {config.shown_url(url)} and ours are {apart_s:.0f} s apart; from 900 s on "
        "it refuses us, and all latencies are wrong: look at both with timedatectl"
    )
    return [Finding("clock", "wrong", said)]


async def look_at_allowed(cfg: config.Config) -> list[Finding]:
    """Check that the buckets that `objects.allow` names in the default store are there."""
    names = sorted({one.partition("/")[0] for one in cfg.objects.allow or () if "://" not in one})
    found: list[Finding] = []
    async with aclosing(open_objects(cfg, lazily=True)) as objects:
        for bucket in names:
            if set("*?[") & set(bucket):
                continue
            try:
                await objects.part(place_of(cfg, f"s3://{bucket}/{PROBE.key}"), 0, 1)
            except NoBucket as error:
                said = f"objects.allow names it: {error}; correct the name, or make it"
                found.append(Finding(f"bucket {bucket}", "wrong", said))
            except Poison as error:
                # Any other code means that there is no such object, so the bucket can be read.
                if error.code == "forbidden":
                    said = f"objects.allow names it, and its objects may not be read: {error}"
                    found.append(Finding(f"bucket {bucket}", "mind", said))
    return found


async def look_at_named(name: str, store: config.Store) -> str:
    async with aclosing(open_store(name, store)) as objects:
        folder = folder_of(store.url)
        if folder is not None and not await asyncio.to_thread(Path(folder).is_dir):
            raise usage(f"{folder} is not a folder; correct stores.{name}.url")
        await ask_store(objects, store.endpoint_url)
    return config.shown_url(store.url)


async def look_at_object(cfg: config.Config, url: str) -> str:
    location = place_of(cfg, url)
    async with aclosing(open_objects(cfg, lazily=True)) as objects:
        part = await objects.part(location, 0, 1)
    return f"readable, {part.size:,} bytes"


def place_of(cfg: config.Config, url: str) -> Location:
    """The location of the object with this URL. Raises `Fatal` if the text is no URL."""
    try:
        named, bucket, key = split_url(url)
    except SchemaError as error:
        raise usage(str(error)) from None
    return Location(bucket, key, store=StoreChoice(places_of_caller(cfg)).of(named, bucket, key))
