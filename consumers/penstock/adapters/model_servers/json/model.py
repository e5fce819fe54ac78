"""A model behind any JSON server: KServe's first protocol, TF Serving, MLflow, LitServe and others.

Rule: one POST for each batch; the answer has one element per row at a configured place. For an
unknown server a 5xx does not tell whether rows or server are at fault: 500 counts as the rows'
fault, because frameworks answer 500 if the model raises. Every other 5xx counts as the server's
fault. Owner: the application.
"""

from collections.abc import Sequence

from yarl import URL

from penstock import config, requests
from penstock.adapters.model_servers import row_answers
from penstock.adapters.model_servers.http_calls import ModelHttp, Reply, Request
from penstock.adapters.model_servers.http_model import HttpModel, read_answer
from penstock.adapters.model_servers.json.presets import LINES, envelope
from penstock.adapters.model_servers.refusals import (
    NOT_FOUND,
    NOT_IMPLEMENTED,
    OK,
    by_status,
    complaint,
    of_server,
    too_large,
)
from penstock.core.rows.payload import Payload
from penstock.errors import PenstockError, Poison
from penstock.ports import Answers


class JsonModel(HttpModel):
    """The port `Model`."""

    def __init__(self, settings: config.Model) -> None:
        self._form = envelope(settings)
        super().__init__(settings, ModelHttp(settings))
        root = settings.url.rstrip("/") if self._form.path else settings.url
        self.url = URL(root + self._form.path)
        self._health_url = URL(root + self._form.health) if self._form.health else None
        self._shown_url = config.shown_url(str(self.url))
        # Without this header SageMaker's containers choose a format themselves.
        is_lines = self._form.answers == LINES
        self._accept = {"Accept": requests.JSON_LINES} if is_lines else {}
        self._row_error = settings.row_error

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        if not payloads:
            await self.check()
            await self._check_address()
            return Answers([], {})
        rows = sum(payload.rows for payload in payloads)
        if self._form.is_single and rows > 1:
            raise Poison("too_large", f"{rows} rows; this request carries one")
        request = self.request(payloads)
        reply = await self._http.post(self.url, request, rows)
        if reply.status != OK:
            raise self._refusal(reply, len(request.body))
        return read_answer(self._parsed, reply, rows, request)

    def request(self, payloads: Sequence[Payload]) -> Request:
        """The body and headers that `predict` posts for these rows."""
        body, headers = self._form.encode(payloads)
        return Request(body, {**headers, **self._accept})

    def _parsed(self, raw: bytes, rows: int) -> Answers:
        if self._form.is_single:
            return row_answers.parse_single(raw, rows)
        if self._form.answers == LINES:
            answers = row_answers.parse(row_answers.from_lines(raw), rows)
        else:
            answers = row_answers.parse(raw, rows, self._form.answers or "")
        if self._row_error is None:
            return answers
        return row_answers.refused_at(answers, self._row_error)

    async def check(self) -> None:
        if self._health_url is None:
            await self._check_address()
            return
        reply = await self._http.look(self._health_url)
        if reply.status >= 300:
            raise of_server(self._refusal(reply, 0))

    async def _check_address(self) -> None:
        """Ask the prediction address by OPTIONS. Only 401, 403, 404 and statuses above 501 are
        errors. All other statuses can just mean that the server does not know OPTIONS; Python's
        `http.server`, for example, answers 501 then.
        """
        reply = await self._http.look(self.url, "OPTIONS")
        if reply.status in (401, 403, NOT_FOUND) or reply.status > NOT_IMPLEMENTED:
            raise of_server(self._refusal(reply, 0))

    def _refusal(self, reply: Reply, sent_bytes: int) -> PenstockError:
        said = f"{self._shown_url} answered {reply.status}: {complaint(reply.body)}"
        too_big = too_large(self._shown_url, sent_bytes)
        by_model = reply.status == 500
        return by_status(reply.status, reply.headers, said, too_large=too_big, by_model=by_model)
