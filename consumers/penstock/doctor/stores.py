"""Do the stores answer, are the objects readable, and can results be written?"""

import asyncio
from pathlib import Path

from penstock import config
from penstock.adapters.stores.choice import open_objects, open_store, places_of_caller
from penstock.adapters.stores.names import NoBucket, folder_of
from penstock.calls.wait_for_services import PROBE, ask_store
from penstock.core.records.result_template import parsed
from penstock.core.routing.places import Places
from penstock.errors import EXIT_USAGE, Fatal, Poison
from penstock.messages.errors import SchemaError
from penstock.messages.urls import split_url
from penstock.ports import Location


async def look_at_default(cfg: config.Config) -> str:
    url = cfg.objects.endpoint_url
    objects = open_objects(cfg)
    try:
        await ask_store(objects, url)
    finally:
        await objects.aclose()
    place = config.shown_url(url) if url else "the place that its client takes by itself"
    return f"{place}; to see if an object is readable: penstock doctor s3://BUCKET/KEY"


async def look_at_named(name: str, store: config.Store) -> str:
    objects = open_store(name, store)
    try:
        folder = folder_of(store.url)
        if folder is not None and not await asyncio.to_thread(Path(folder).is_dir):
            raise Fatal(
                f"{folder} is not a folder; correct stores.{name}.url", exit_code=EXIT_USAGE
            )
        await ask_store(objects, store.endpoint_url)
    finally:
        await objects.aclose()
    return config.shown_url(store.url)


async def look_at_object(cfg: config.Config, url: str) -> str:
    location = place_of(cfg, url)
    objects = open_objects(cfg, lazily=True)
    try:
        part = await objects.part(location, 0, 1)
    finally:
        await objects.aclose()
    return f"readable, {part.size:,} bytes"


def place_of(cfg: config.Config, url: str) -> Location:
    """Where the object of this URL is. Raises `Fatal` for what is no URL."""
    try:
        named, bucket, key = split_url(url)
    except SchemaError as error:
        raise Fatal(str(error), exit_code=EXIT_USAGE) from None
    return Location(bucket, key, store=Places(places_of_caller(cfg)).of(named, bucket, key))


async def look_at_results(cfg: config.Config, template: str) -> str:
    """Is there a place to write to? An object that is not there is asked for: nothing is written,
    so that rights to write are not seen.
    """
    try:
        names = parsed(template)
    except ValueError as error:
        raise Fatal(f"output.objects: {error}", exit_code=EXIT_USAGE) from None
    if names.scheme == "file" or "{" in names.bucket:
        return f"{template}; its bucket is found with the first result"
    place = place_of(cfg, f"{names.scheme}://{names.bucket}/{PROBE.key}")
    objects = open_objects(cfg, lazily=True)
    try:
        await objects.part(place, 0, 1)
    except NoBucket as error:
        raise Fatal(f"output.objects: {error}", exit_code=EXIT_USAGE) from None
    except Poison:
        # No such object, or no right to read it: the bucket is there.
        pass
    finally:
        await objects.aclose()
    return f"{template}; the bucket is there"
