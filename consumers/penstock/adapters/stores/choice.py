"""Makes a client for each configured store, and passes each request to the right one.

Rule: S3, Google and Azure are read by obstore, `file://` is a folder, fsspec reads all other
schemes. Small objects of S3 are read by GETs of our own. If s3fs is configured, it replaces both.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from penstock import config
from penstock.adapters.s3.buckets import as_profile_says, is_proxied
from penstock.adapters.s3.direct_get import DirectObjects
from penstock.adapters.s3.obstore_client import ObstoreObjects
from penstock.adapters.s3.s3fs_client import S3fsObjects
from penstock.adapters.stores.clouds import CloudObjects
from penstock.adapters.stores.fsspec_client import FsspecObjects
from penstock.adapters.stores.local_files import FolderObjects
from penstock.adapters.stores.names import folder_of
from penstock.adapters.stores.replicas import Copy, ReplicatedObjects, StoreWatcher
from penstock.core.routing.store_choice import DEFAULT, ConfiguredStore
from penstock.errors import usage
from penstock.messages.reference import SchemaError
from penstock.messages.urls import S3, split_place
from penstock.ports import Listed, Location, ObjectBody, Objects, Part

# Stores with these schemes need not be configured, because the cloud's own chain finds the
# credentials.
CLOUDS: Final = ("gs", "az")
AWS_URL: Final = "https://s3.amazonaws.com"


def open_objects(
    cfg: config.Config, *, lazily: bool = False, watcher: StoreWatcher | None = None
) -> Objects:
    """All configured stores. `lazily`: True if each client is made only when it is first needed.
    `watcher` is told of reads from stores with replicas. If a region is configured, it is told of
    reads from all stores. Raises `Fatal` for settings that cannot be right.
    """
    makers: dict[str, Callable[[], Objects]] = {DEFAULT: partial(_open_default, cfg.objects)}
    makers |= {name: partial(open_store, name, store) for name, store in cfg.stores.items()}
    replicas = _replicas_of(cfg)
    if not cfg.stores and cfg.region is None:
        return makers[DEFAULT]()
    objects = Stores(makers, replicas, watcher, counts_all=cfg.region is not None)
    for place in places_of(cfg) if not lazily else ():
        objects.of(place.name)
    return objects


def _replicas_of(cfg: config.Config) -> dict[str, list[str]]:
    stores: dict[str, config.Access] = {DEFAULT: cfg.objects, **cfg.stores}
    for name, store in stores.items():
        for replica in store.replicas or ():
            if replica == name or replica not in stores:
                section = name if name == DEFAULT else f"stores.{name}"
                raise usage(
                    f"{section}.replicas: there is no other store {replica}; configure "
                    f"[stores.{replica}], or correct the name"
                )
    return {name: store.replicas for name, store in stores.items() if store.replicas}


def open_store(name: str, store: config.Store) -> Objects:
    """The client of `[stores.NAME]`."""
    section = f"stores.{name}"
    scheme = place_of(name, store).scheme
    if scheme == S3:
        return _open_s3(store, section)
    if scheme in CLOUDS:
        return CloudObjects(store, scheme, section=section)
    if scheme == "file":
        return FolderObjects(folder_of(store.url) or "/")
    return FsspecObjects(store, scheme, section=section)


def _open_default(settings: config.Objects) -> Objects:
    folder = folder_of(settings.endpoint_url)
    return _open_s3(settings, DEFAULT) if folder is None else FolderObjects(folder)


def _open_s3(settings: config.Access, section: str) -> Objects:
    settings = as_profile_says(settings, section)
    # If the environment names a proxy, obstore cannot be kept from following redirects to other
    # hosts. So s3fs is used.
    if settings.client == "s3fs" or is_proxied(settings.endpoint_url or AWS_URL):
        return S3fsObjects(settings, section=section)
    objects = ObstoreObjects(settings, section=section)
    return objects if settings.anon else DirectObjects(objects, settings, section=section)


def places_of(cfg: config.Config) -> list[ConfiguredStore]:
    """Tells which URLs each store is for. `[objects]` is left out if only other stores are
    configured.
    """
    named = [place_of(name, store) for name, store in cfg.stores.items()]
    access = {key: getattr(cfg.objects, key) for key in config.Access.__struct_fields__}
    if named and config.Access(**access) == config.Access():
        return named
    return [ConfiguredStore(DEFAULT, S3), *named]


def places_of_caller(cfg: config.Config) -> list[ConfiguredStore]:
    """Like `places_of`, for URLs that the caller names: `[objects]` is always in the list."""
    return [
        ConfiguredStore(DEFAULT, S3),
        *(place for place in places_of(cfg) if place.name != DEFAULT),
    ]


def place_of(name: str, store: config.Store) -> ConfiguredStore:
    if name == DEFAULT:
        raise usage(
            f"[stores.{DEFAULT}]: that is the name of the section [objects]; choose another"
        )
    try:
        scheme, account, bucket, _ = split_place(store.url)
    except SchemaError as error:
        raise usage(f"stores.{name}.url: {error}") from None
    # A folder's own path names no bucket, because its subfolders are the buckets.
    bucket = "*" if scheme == "file" else bucket or "*"
    return ConfiguredStore(name, scheme, bucket, store.account or account, tuple(store.route or ()))


def with_clouds(cfg: config.Config) -> config.Config:
    """Add the clouds that are not configured, for URLs that the caller names. Such a cloud is read
    with the credentials that the cloud's own tools would find. References of a topic never use
    these credentials.
    """
    schemes = {place_of(name, store).scheme for name, store in cfg.stores.items()}
    clouds = {
        scheme: config.Store(url=f"{scheme}://") for scheme in CLOUDS if scheme not in schemes
    }
    return msgspec.structs.replace(cfg, stores=clouds | cfg.stores)


@dataclass(slots=True)
class Stores:
    """Implements the port `Objects` over several clients, each made when it is first needed.
    `replicas`: a mapping from a store's name to the names of its replicas. `counts_all`: True if
    the watcher is told about reads of all stores; False if it is told only about stores with
    replicas.
    """

    makers: Mapping[str, Callable[[], Objects]]
    replicas: Mapping[str, Sequence[str]]
    watcher: StoreWatcher | None = None
    counts_all: bool = field(default=False, kw_only=True)
    _clients: dict[str, Objects] = field(default_factory=dict, init=False)
    _read: dict[str, Objects] = field(default_factory=dict, init=False)

    def of(self, store: str) -> Objects:
        objects = self._read.get(store)
        if objects is None:
            objects = self._client(store)
            if self.counts_all or store in self.replicas:
                copies = [store, *self.replicas.get(store, ())]
                choices = [Copy(copy, self._client(copy)) for copy in copies]
                objects = ReplicatedObjects(choices, self.watcher)
            self._read[store] = objects
        return objects

    def _client(self, store: str) -> Objects:
        client = self._clients.get(store)
        if client is None:
            client = self._clients[store] = self.makers[store]()
        return client

    async def open(self, location: Location) -> ObjectBody:
        return await self.of(location.store).open(location)

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        return await self.of(location.store).part(location, start, stop)

    def list(self, bucket: str, pattern: str, store: str = DEFAULT) -> AsyncIterator[Listed]:
        return self.of(store).list(bucket, pattern, store)

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()
