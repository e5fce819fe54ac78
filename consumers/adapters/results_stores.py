"""Which adapter writes `output.objects`.

Rule: a store that is read is written as well, by the rules that choose a reference's store and with
the same credentials; `file://` is a folder. Owner: the application and the library call.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from consumers import config
from consumers.adapters.objects_cloud_errors import translated as cloud_translated
from consumers.adapters.objects_clouds import cloud_buckets
from consumers.adapters.objects_common import READ_TIMEOUT_S, folder_of
from consumers.adapters.objects_obstore_errors import translated
from consumers.adapters.objects_obstore_reach import s3_buckets
from consumers.adapters.objects_s3fs import S3fsObjects
from consumers.adapters.objects_s3fs_answers import CLIENT_ERRORS
from consumers.adapters.results_folder import FolderResults
from consumers.adapters.results_obstore import PATIENCE, ObstoreResults
from consumers.adapters.stores import CLOUDS, place_of, places_of_caller, with_clouds
from consumers.core.places import DEFAULT, Places
from consumers.core.result_names import ResultNames
from consumers.errors import EXIT_USAGE, Fatal, Poison
from consumers.ports import Location, Results
from schemas.urls import S3

if TYPE_CHECKING:
    from obstore.store import RetryConfig

RETRIES: "Final[RetryConfig]" = {"max_retries": 20, "retry_timeout": PATIENCE}


def open_results(cfg: config.Config, template: str) -> Results:
    """Raises `Fatal` for settings that cannot be right."""
    try:
        names = ResultNames(template, cfg.model.name, is_for_one=True)
        if names.scheme == "file":
            return FolderResults("/")
        cfg = with_clouds(cfg)
        # A bucket with fields in it is one of those that no store is named after.
        store = Places(places_of_caller(cfg)).of(names.scheme, names.bucket, "")
    except (ValueError, Poison) as error:
        raise Fatal(f"output.objects: {error}", exit_code=EXIT_USAGE) from None
    return _default(cfg.objects) if store == DEFAULT else _named(store, cfg.stores)


def _default(settings: config.Objects) -> Results:
    folder = folder_of(settings.endpoint_url)
    return _s3(settings, DEFAULT) if folder is None else FolderResults(folder)


def _named(name: str, stores: Mapping[str, config.Store]) -> Results:
    store, section = stores[name], f"stores.{name}"
    scheme = place_of(name, store).scheme
    if scheme == S3:
        return _s3(store, section)
    if scheme == "file":
        return FolderResults(folder_of(store.url) or "/")
    if scheme in CLOUDS:
        reach = cloud_buckets(store, scheme, section, READ_TIMEOUT_S, RETRIES)
        return ObstoreResults(reach, None, cloud_translated)
    raise Fatal(
        f"output.objects: results are written to s3, gs, az and file, not to {scheme}",
        exit_code=EXIT_USAGE,
    )


def _s3(settings: config.Access, section: str) -> Results:
    exact = S3fsObjects(settings, section=section)
    reach = s3_buckets(settings, section, READ_TIMEOUT_S, RETRIES)
    return ObstoreResults(reach, Leftovers(exact).remove, translated, exact.aclose)


class Leftovers:
    """Uploads of a worker that was killed: S3 keeps their parts, unseen and paid for, for ever.
    Azure ends them by itself after a week, Google by a rule of the bucket.
    """

    def __init__(self, store: S3fsObjects) -> None:
        self._store = store

    async def remove(self, location: Location) -> None:
        """Those of this name. A store that cannot say which there are is no reason to write none;
        the next try of the same name asks again.
        """
        bucket, key = location.bucket, location.key
        with suppress(*CLIENT_ERRORS):
            client: Any = await self._store.client()
            found = await client.list_multipart_uploads(Bucket=bucket, Prefix=key)
            for upload in found.get("Uploads") or ():
                if upload["Key"] == key:
                    await client.abort_multipart_upload(
                        Bucket=bucket, Key=key, UploadId=upload["UploadId"]
                    )
