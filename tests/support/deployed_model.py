"""A model of a test's own on the running TorchServe, by its management interface.

Rule: registered when the block is entered, gone when it is left.
"""

import asyncio
import os
import signal
import subprocess
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import pytest

from tests.support.services import Services

HANDLER = Path(__file__).with_name("sick_handler.py")


class DeployedModel:
    """`name` is what a worker gets as `model.name`."""

    def __init__(self, name: str, management: str) -> None:
        self.name = name
        self.batch_size = 1
        self._management = management
        self._url = "http://localhost/models"

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=aiohttp.UnixConnector(self._management))

    async def register(self, archive: Path) -> None:
        query = {"model_name": self.name, "url": archive.as_uri()}
        query |= {"initial_workers": "1", "synchronous": "true"}
        async with (
            self._session() as session,
            session.post(self._url, params=query) as answer,
        ):
            assert answer.status == 200, await answer.text()

    async def unregister(self) -> None:
        async with (
            self._session() as session,
            session.delete(f"{self._url}/{self.name}") as answer,
        ):
            await answer.read()

    async def worker_pid(self) -> int | None:
        """Of its Python process; None if there is none at the moment."""
        async with (
            self._session() as session,
            session.get(f"{self._url}/{self.name}") as answer,
        ):
            (description,) = await answer.json()
        alive = (worker["pid"] for worker in description["workers"] if worker["status"] == "READY")
        return next(alive, None)

    async def kill_worker(self) -> bool:
        """At once; False if there is none at the moment."""
        pid = await self.worker_pid()
        if pid is None:
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True


@asynccontextmanager
async def deployed(
    services: Services,
    kind: str,
    *,
    handler: Path | str = HANDLER,
    serialized: Path | None = None,
    extra_files: Sequence[Path] = (),
    queue_size: int = 100,
    batch_size: int = 1,
    batch_delay_ms: int = 20,
) -> AsyncIterator[DeployedModel]:
    """A handler, by default the one that falls ill, as a model whose name begins with `kind`. A
    handler that is no path is one of TorchServe's own; a folder among the files stands for what is
    in it.
    """
    if services.torch_python is None or services.management_socket is None:
        pytest.skip("TorchServe does not run beside us: no model can be given to it")
    name = f"{kind}-{uuid.uuid4().hex[:8]}"
    with TemporaryDirectory() as folder:
        settings = Path(folder) / "model.yaml"
        settings.write_text(
            f"minWorkers: 1\nmaxWorkers: 1\nbatchSize: {batch_size}\n"
            f"maxBatchDelay: {batch_delay_ms}\njobQueueSize: {queue_size}\n"
        )
        command = [services.torch_python, "-m", "model_archiver.model_packaging"]
        command += ["--model-name", name, "--version", "1.0", "--handler", str(handler)]
        command += ["--config-file", str(settings), "--export-path", folder]
        if serialized is not None:
            command += ["--serialized-file", str(serialized)]
        if extra_files:
            command += ["--extra-files", ",".join(map(str, extra_files))]
        # Its warning about a module that is run while it is imported is none of ours.
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
        async with registered(services, name, Path(folder, f"{name}.mar")) as model:
            yield model


@asynccontextmanager
async def registered(services: Services, name: str, archive: Path) -> AsyncIterator[DeployedModel]:
    """An archive as a model of this name."""
    assert services.management_socket is not None
    model = DeployedModel(name, services.management_socket)
    try:
        await model.register(archive)
        yield model
    finally:
        await model.unregister()
