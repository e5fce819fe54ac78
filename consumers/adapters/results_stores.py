"""Which adapter writes `output.objects`.

Rule: the store that is read is written as well, with the same credentials; `file://` is a folder.
Owner: the application and the library call.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from consumers import config
from consumers.adapters.objects_common import READ_TIMEOUT_S, folder_of
from consumers.adapters.objects_obstore import s3_buckets
from consumers.adapters.objects_s3fs import S3fsObjects
from consumers.adapters.objects_s3fs_answers import CLIENT_ERRORS
from consumers.adapters.results_folder import FolderResults
from consumers.adapters.results_obstore import PATIENCE, ObstoreResults
from consumers.errors import EXIT_USAGE, Fatal
from consumers.ports import Location, Results

if TYPE_CHECKING:
    from obstore.store import RetryConfig


def open_results(cfg: config.Config) -> Results | None:
    """None where no results are written."""
    template = cfg.output.objects
    if template is None:
        return None
    scheme = template.partition("://")[0]
    if scheme == "file":
        return FolderResults("/")
    if scheme != "s3":
        raise Fatal(
            f"output.objects: {template!r} is of no store that is known; write s3://... or "
            "file:///...",
            exit_code=EXIT_USAGE,
        )
    folder = folder_of(cfg.objects.endpoint_url)
    return _s3(cfg.objects) if folder is None else FolderResults(folder)


def _s3(settings: config.Objects) -> Results:
    exact = S3fsObjects(settings)
    retries: RetryConfig = {"max_retries": 20, "retry_timeout": PATIENCE}
    reach = s3_buckets(settings, READ_TIMEOUT_S, retries)
    return ObstoreResults(reach, Leftovers(exact).remove, exact.aclose)


class Leftovers:
    """Uploads of a worker that was killed: S3 keeps their parts, unseen and paid for, for ever."""

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
