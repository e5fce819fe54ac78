"""The unfinished uploads of killed workers: S3 keeps their parts for ever, invisible but paid for.
Azure removes such parts after a week, Google by a rule of the bucket.

Rule: another worker may be writing the same name now, for example if an object is announced in two
partitions. So an upload is aborted only if it did not grow while ours was written, and only after
ours is complete: otherwise two workers could abort each other's uploads for ever. Owner: the client
that writes results.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from penstock.adapters.s3.s3fs_client import S3fsObjects
from penstock.adapters.s3.s3fs_errors import CLIENT_ERRORS
from penstock.ports import Location

# How many uploads one result looks at, because each upload costs two requests or more. Later
# results of the same name abort the other uploads.
AT_A_TIME: Final = 100

# From the id of each upload to the number of parts that it had.
Uploads = Mapping[str, int]


class S3Leftovers:
    """No method raises: results must be written even if the store cannot list its unfinished
    uploads.
    """

    def __init__(self, store: S3fsObjects) -> None:
        self._store = store

    async def seen(self, location: Location) -> Uploads:
        """The unfinished uploads of this name, before ours begins."""
        found: dict[str, int] = {}
        with suppress(*CLIENT_ERRORS):
            client: Any = await self._store.client()
            bucket, key = location.bucket, location.key
            listed = await client.list_multipart_uploads(Bucket=bucket, Prefix=key)
            ids = [one["UploadId"] for one in listed.get("Uploads") or () if one["Key"] == key]
            for upload in ids[:AT_A_TIME]:
                found[upload] = await self._parts(client, location, upload)
        return found

    async def remove(self, location: Location, seen: Uploads) -> None:
        """Abort the uploads that have not grown since they were `seen`: no worker writes them."""
        for upload, parts in seen.items():
            with suppress(*CLIENT_ERRORS):
                client: Any = await self._store.client()
                if await self._parts(client, location, upload) == parts:
                    await client.abort_multipart_upload(
                        Bucket=location.bucket, Key=location.key, UploadId=upload
                    )

    async def begun(self, bucket: str) -> Sequence[datetime] | None:
        """When the unfinished uploads of the bucket began, for at most a thousand of them. None if
        the store does not tell.
        """
        try:
            client: Any = await self._store.client()
            listed = await client.list_multipart_uploads(Bucket=bucket)
        except CLIENT_ERRORS:
            return None
        return [one["Initiated"] for one in listed.get("Uploads") or ()]

    async def aclose(self) -> None:
        await self._store.aclose()

    async def _parts(self, client: Any, location: Location, upload: str) -> int:
        """How many parts an upload has. All are counted (a page has a thousand): otherwise a large
        upload of another worker would seem not to grow.
        """
        parts = 0
        pages = client.get_paginator("list_parts")
        named = {"Bucket": location.bucket, "Key": location.key, "UploadId": upload}
        async for page in pages.paginate(**named):
            parts += len(page.get("Parts") or ())
        return parts
