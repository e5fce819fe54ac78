"""Opens the store that `output.objects` names, to write result objects there.

Rule: the store for results is chosen by the same rules as a store that is read, and is written with
the same credentials; `file://` is a folder. Owner: the application and the library call.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import BaseError

from penstock import config
from penstock.adapters.result_stores.folder import FolderResults
from penstock.adapters.result_stores.uploads import PATIENCE, Meaning, ObstoreUpload, S3Leftovers
from penstock.adapters.s3.buckets import Buckets, s3_buckets
from penstock.adapters.s3.kept_stores import KeptStores
from penstock.adapters.s3.profile import as_profile_says
from penstock.adapters.s3.s3fs_client import S3fsObjects
from penstock.adapters.stores.choice import CLOUDS, place_of, places_of_caller, with_clouds
from penstock.adapters.stores.clouds import cloud_buckets
from penstock.adapters.stores.names import folder_of, is_for_botocore
from penstock.adapters.stores.obstore_errors import cloud_translated, translated
from penstock.adapters.stores.transfer import READ_TIMEOUT_S
from penstock.core.records.result_template import parsed
from penstock.core.routing.store_choice import DEFAULT, StoreChoice
from penstock.errors import Poison, usage
from penstock.messages.urls import S3
from penstock.ports import Location

if TYPE_CHECKING:
    from obstore.store import RetryConfig

# obstore chooses each pause before a retry at random between `FIRST_WAIT` and `LONGEST_WAIT`. The
# number of retries is so high that only `PATIENCE` ends them: twenty retries of a store that
# answered 500 lasted 4-28 s.
FIRST_WAIT: Final = timedelta(seconds=0.1)
LONGEST_WAIT: Final = timedelta(seconds=5)
RETRIES: "Final[RetryConfig]" = {
    "max_retries": PATIENCE // FIRST_WAIT,
    "retry_timeout": PATIENCE,
    "backoff": {"init_backoff": FIRST_WAIT, "max_backoff": LONGEST_WAIT, "base": 2},
}


class ObstoreResults:
    """Implements the port `Results`. `reach`: a function that opens a bucket. `leftovers`: removes
    unfinished uploads; None if the store removes them by itself. `meaning`: a function that
    translates obstore's errors. `name`: the store's name, for error messages.
    """

    def __init__(
        self,
        reach: Buckets,
        leftovers: S3Leftovers | None,
        meaning: Meaning,
        name: str,
    ) -> None:
        self._stores = KeptStores(reach)
        self.leftovers = leftovers
        self._meaning = meaning
        self._name = name

    def begin(self, location: Location) -> "ObstoreUpload":
        store = self._stores.of(location.bucket)
        named = location._replace(store=self._name)
        return ObstoreUpload(store, named, self.leftovers, self._meaning)

    async def has(self, location: Location) -> bool:
        try:
            await obstore.head_async(self._stores.of(location.bucket), location.key)
        except FileNotFoundError:
            return False
        except (BaseError, OSError) as error:
            meant = self._meaning(error, location._replace(store=self._name))
            if isinstance(meant, Poison):
                raise usage(
                    f"it cannot be told if there is a result: {meant}; without the right to list "
                    "the bucket (s3:ListBucket) stores do not say that an object is missing"
                ) from None
            raise meant from None
        return True

    async def try_write(self, location: Location) -> str | None:
        """Write an empty object and remove it again. Returns why it could not be removed; None if
        it was removed. Raises the errors of `Upload.complete`.
        """
        upload = self.begin(location)
        await upload.complete()
        try:
            await obstore.delete_async(self._stores.of(location.bucket), location.key)
        except (BaseError, OSError) as error:
            return str(self._meaning(error, location._replace(store=self._name)))
        return None

    async def aclose(self) -> None:
        if self.leftovers is not None:
            await self.leftovers.aclose()


# Both implement the port `Results`, and have `try_write` for `penstock doctor`.
StoreResults = ObstoreResults | FolderResults


def open_results(cfg: config.Config, template: str) -> StoreResults:
    """The store for results whose names are made by `template`. Raises `Fatal` for settings that
    cannot be right.
    """
    try:
        names = parsed(template)
        if is_for_botocore(names.bucket):
            raise ValueError(
                f"{names.bucket} is no plain bucket; write to the access point's alias, or to a "
                "bucket for general purposes"
            )
        if names.scheme == "file":
            return FolderResults("/")
        cfg = with_clouds(cfg)
        # A bucket name with fields in it never matches a store that is set up for one bucket.
        store = StoreChoice(places_of_caller(cfg)).of(names.scheme, names.bucket, "")
    except (ValueError, Poison) as error:
        raise usage(f"output.objects: {error}") from None
    return _default(cfg.objects) if store == DEFAULT else _named(store, cfg.stores)


def _default(settings: config.Objects) -> StoreResults:
    folder = folder_of(settings.endpoint_url)
    return _s3(settings, DEFAULT, DEFAULT) if folder is None else FolderResults(folder)


def _named(name: str, stores: Mapping[str, config.Store]) -> StoreResults:
    store, section = stores[name], f"stores.{name}"
    scheme = place_of(name, store).scheme
    if scheme == S3:
        return _s3(store, section, name)
    if scheme == "file":
        return FolderResults(folder_of(store.url) or "/")
    if scheme in CLOUDS:
        reach = cloud_buckets(store, scheme, section, READ_TIMEOUT_S, RETRIES)
        return ObstoreResults(reach, None, cloud_translated, name)
    raise usage(f"output.objects: results are written to s3, gs, az and file, not to {scheme}")


def _s3(settings: config.Access, section: str, name: str) -> StoreResults:
    settings = as_profile_says(settings, section)
    exact = S3fsObjects(settings, section=section)
    reach = s3_buckets(settings, section, READ_TIMEOUT_S, RETRIES)
    return ObstoreResults(reach, S3Leftovers(exact), translated, name)


def leftovers_of(cfg: config.Config, template: str) -> S3Leftovers | None:
    """Gives access to the unfinished uploads in the store that results are written to. None if this
    store is not S3, because other stores remove such uploads by themselves.
    """
    results = open_results(cfg, template)
    return results.leftovers if isinstance(results, ObstoreResults) else None
