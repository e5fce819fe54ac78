"""A MinIO beside the stack's, for tests that kill a store.

Rule: its data stays where it was put, so that it comes back as it went. Owner: who made it, who
also ends it.
"""

import os
import signal
from pathlib import Path

from realstack import layout, processes
from realstack.minio import Minio
from realstack.processes import Process
from realstack.service import NotReady
from tests.support.waiting import until


class OwnMinio:
    """A MinIO of the test's own, which it may kill and start again with its data."""

    def __init__(self, folder: Path, kafka: str) -> None:
        self._folder = folder
        self._ports = {**layout.free_ports(["minio"]), "kafka": int(kafka.rpartition(":")[2])}
        self._process: Process | None = None
        self.url = f"http://127.0.0.1:{self._ports['minio']}"

    async def start(self) -> None:
        launch = Minio().configure(self._folder, self._ports)
        log = self._folder / "log"
        self._process = processes.start(launch.argv, log=log, cwd=self._folder, env=launch.env)

        async def answers() -> bool:
            try:
                Minio().probe(self._ports)
            except NotReady:
                return False
            return True

        await until(answers, lambda: processes.tail(log))

    def kill(self) -> None:
        if self._process is not None and self._process.running:
            os.killpg(self._process.pid, signal.SIGKILL)
            while self._process.running:
                pass
