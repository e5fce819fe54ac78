"""A model whose server may put several requests into one batch of its own.

Rule: such a server refuses all requests of a batch for one bad row. So the refusal of a single row
counts only if this worker had no other request open; else the row is sent once more, while the
worker's others wait. Those of other workers go on, so a good row is still refused if it shares a
batch with another worker's bad row both times.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from penstock.core.rows.payload import Payload
from penstock.errors import Rejected
from penstock.ports import Answers, Model


class AskedAgainAlone:
    """Implements the port `Model` around another model, which gets the rows."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._under_way = 0
        self._begun = 0
        self._is_open, self._is_idle = asyncio.Event(), asyncio.Event()
        self._is_open.set()
        self._is_idle.set()
        self._turn = asyncio.Lock()

    @property
    def version(self) -> str | None:
        return self._model.version

    @property
    def most_rows(self) -> int | None:
        return self._model.most_rows

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        while not self._is_open.is_set():
            await self._is_open.wait()
        had_company = self._under_way > 0
        self._begun += 1
        begun = self._begun
        try:
            with self._counted():
                return await self._model.predict(payloads)
        except Rejected:
            had_company = had_company or self._begun > begun
            if not had_company or sum(payload.rows for payload in payloads) != 1:
                raise
        async with self._alone():
            return await self._model.predict(payloads)

    async def ready(self) -> bool:
        return await self._model.ready()

    async def aclose(self) -> None:
        await self._model.aclose()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._under_way += 1
        self._is_idle.clear()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._is_idle.set()

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        async with self._turn:
            self._is_open.clear()
            try:
                while self._under_way:
                    await self._is_idle.wait()
                yield
            finally:
                self._is_open.set()
