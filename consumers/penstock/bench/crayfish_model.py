"""Puts the network of the Crayfish benchmark into the running TorchServe, and removes it at the
end.

Rule: the model archive is written here, without torch, which only the server needs. Owner: `bench
crayfish`.
"""

import json
import uuid
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import aiohttp

from penstock import config
from penstock.errors import Fatal, usage

HANDLERS: Final = Path(__file__).parents[1] / "handlers"
HANDLER: Final = "crayfish_handler.py"
# TorchServe starts a worker in some seconds, but on busy cores a start takes far longer.
ANSWER_S: Final = 120.0


class Deployed:
    """The model, under a name that no other run uses."""

    def __init__(self, session: aiohttp.ClientSession, management_url: str) -> None:
        self.name = f"crayfish-{uuid.uuid4().hex[:8]}"
        self._session = session
        self._url = f"{management_url.rstrip('/')}/models"

    async def register(self, archive: Path) -> None:
        query = {"url": archive.as_uri(), "model_name": self.name, "initial_workers": "1"}
        await self._ask("POST", self._url, query | {"synchronous": "true"})

    async def scale(self, workers: int) -> None:
        query = {"min_worker": str(workers), "max_worker": str(workers), "synchronous": "true"}
        await self._ask("PUT", f"{self._url}/{self.name}", query)

    async def unregister(self) -> None:
        await self._ask("DELETE", f"{self._url}/{self.name}", {})

    async def _ask(self, method: str, url: str, query: dict[str, str]) -> None:
        async with self._session.request(method, url, params=query) as answer:
            if answer.status >= 300:
                said = (await answer.text())[:300]
                raise Fatal(f"TorchServe refused {method} {url}: {answer.status} {said}")


@asynccontextmanager
async def deployed(settings: config.Model) -> AsyncIterator[Deployed]:
    if settings.management_url is None or settings.protocol != "torchserve":
        raise usage(
            "the Crayfish case puts a model into TorchServe: set model.management_url, and leave "
            "model.protocol at torchserve"
        )
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    with TemporaryDirectory() as folder:
        async with aiohttp.ClientSession(timeout=timeout) as session:
            model = Deployed(session, settings.management_url)
            await model.register(_archive(Path(folder), model.name))
            try:
                yield model
            finally:
                await model.unregister()


def _archive(folder: Path, name: str) -> Path:
    """Writes the model archive in the form of `torch-model-archiver`."""
    # TorchServe may run as another user, who must be able to read the folder.
    folder.chmod(0o755)
    manifest = {
        "createdOn": "01/01/1970 00:00:00",
        "runtime": "python",
        "model": {"modelName": name, "handler": HANDLER, "modelVersion": "1.0"},
        "archiverVersion": "0.12.0",
    }
    path = folder / f"{name}.mar"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest))
        for file in (HANDLER, "rows_handler.py"):
            archive.write(HANDLERS / file, file)
    return path
