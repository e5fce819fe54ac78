"""What the adapters of all models over HTTP share: health, and answers that cannot be read.

Rule: a subclass says how to predict and how to check the server. Owner: the adapters of the JSON
protocols and of TorchServe.
"""

from collections.abc import Callable

from penstock import config
from penstock.adapters.model_servers.http_calls import ModelHttp, Reply, Request
from penstock.errors import PenstockError, Poison
from penstock.ports import Answers


class HttpModel:
    """The part of the port `Model` that all models over HTTP share."""

    # The most rows of one request. None: the server has told no limit.
    most_rows: int | None = None

    def __init__(self, settings: config.Model, http: ModelHttp) -> None:
        self._http = http
        self._version = settings.version

    @property
    def version(self) -> str | None:
        return self._version

    async def ready(self) -> bool:
        try:
            await self.check()
        except PenstockError:
            return False
        return True

    async def check(self) -> None:
        """Returns if the model is there; otherwise raises the error that tells why it is not."""
        raise NotImplementedError

    async def aclose(self) -> None:
        await self._http.aclose()


def read_answer(
    read: Callable[[bytes, int], Answers], reply: Reply, rows: int, request: Request
) -> Answers:
    """The answers that `read` finds in a 200. If there are none, the error shows what was sent."""
    try:
        return read(reply.body, rows)
    except Poison as error:
        error.sent = request.shown(rows)
        raise
