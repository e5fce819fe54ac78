"""Which unfinished uploads of a name are aborted: only those that no worker writes any more."""

from typing import Self

import pytest
from aiohttp import web

from penstock import config
from penstock.adapters.result_stores.uploads import S3Leftovers
from penstock.adapters.s3.s3fs_client import S3fsObjects
from penstock.ports import Location

RESULT = Location("bucket", "result.jsonl")
PAGE_PARTS = 1000


class Uploads:
    """`async with Uploads(parts) as store:` an S3 with one unfinished upload of that many parts,
    which it lists in pages, as S3 does.
    """

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.aborted: list[str] = []
        self.url = ""
        self._runner: web.ServerRunner | None = None

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._answer))
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "DELETE":
            self.aborted.append(request.query["uploadId"])
            return web.Response(status=204)
        if "uploads" in request.query:
            upload = f"<Upload><Key>{RESULT.key}</Key><UploadId>u1</UploadId></Upload>"
            text = f"<ListMultipartUploadsResult>{upload}</ListMultipartUploadsResult>"
        else:
            begin = int(request.query.get("part-number-marker", 0))
            end = min(begin + PAGE_PARTS, self.parts)
            parts = "".join(
                f"<Part><PartNumber>{n + 1}</PartNumber></Part>" for n in range(begin, end)
            )
            is_cut = str(end < self.parts).lower()
            text = (
                f"<ListPartsResult><IsTruncated>{is_cut}</IsTruncated>"
                f"<NextPartNumberMarker>{end}</NextPartNumberMarker>{parts}</ListPartsResult>"
            )
        return web.Response(text=text, content_type="application/xml")


@pytest.mark.parametrize("parts", [3, 2 * PAGE_PARTS + 3])
@pytest.mark.parametrize(("grown", "aborted"), [(0, ["u1"]), (1, [])])
async def test_an_upload_that_grows_is_left_to_its_worker(
    parts: int, grown: int, aborted: list[str]
) -> None:
    async with Uploads(parts) as store:
        settings = config.Objects(endpoint_url=store.url, key="key", secret="secret")
        leftovers = S3Leftovers(S3fsObjects(settings))
        seen = await leftovers.seen(RESULT)
        store.parts += grown
        await leftovers.remove(RESULT, seen)
        await leftovers.aclose()
    assert store.aborted == aborted
