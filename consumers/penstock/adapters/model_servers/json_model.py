"""A model behind any JSON server: KServe's first protocol, TF Serving, MLflow, LitServe and others.

Rule: one POST a batch; one element a row at a configured place. A preset only fills in keys that
the settings leave open. What a refusal means is told by its status (`refusals`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from yarl import URL

from penstock import config
from penstock.adapters.model_servers import request_forms, row_answers
from penstock.adapters.model_servers.http_calls import (
    USUAL_BOUNDS,
    AnswerBounds,
    HttpModel,
    ModelHttp,
    Reply,
    Request,
)
from penstock.adapters.model_servers.offers import with_offers
from penstock.adapters.model_servers.refusals import (
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    by_status,
    complaint,
    of_server,
    too_large,
)
from penstock.adapters.model_servers.request_forms import Body, base64_texts
from penstock.adapters.model_servers.row_answers import read_answer
from penstock.core.rows.payload import JsonRows, Payload
from penstock.errors import PenstockError, Poison, usage
from penstock.ports import Answers

# Marks the place in a template where the rows are put, as JSON elements with commas between them.
ROWS: Final = "{rows}"
# If the settings have this instead of a JSON pointer, the answer has one line of JSON for each row.
LINES: Final = "lines"
_JSON: Final = {"Content-Type": "application/json"}


class JsonModel(HttpModel):
    """Implements the port `Model`."""

    def __init__(self, settings: config.Model, bounds: AnswerBounds = USUAL_BOUNDS) -> None:
        self._form = envelope(settings)
        super().__init__(settings, ModelHttp(settings, bounds))
        root = settings.url.rstrip("/") if self._form.path else settings.url
        self.url = URL(root + self._form.path)
        self._health_url = URL(root + self._form.health) if self._form.health else None
        self._shown_url = config.shown_url(str(self.url))
        # Without this header, SageMaker's containers would choose a format themselves.
        is_lines = self._form.answers == LINES
        self._accept = {"Accept": request_forms.JSON_LINES} if is_lines else {}
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
        if not reply.is_answer:
            raise await with_offers(self._refusal(reply, len(request.body)), self._http)
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
        if reply.status in (NOT_ALLOWED, NOT_IMPLEMENTED):  # the server knows POST alone
            await self._check_address()
        elif reply.status >= 300:
            error = of_server(self._refusal(reply, 0, self._health_url))
            raise await with_offers(error, self._http)

    async def _check_address(self) -> None:
        """Send OPTIONS to the address of the predictions. Only 401, 403, 404 and statuses above 501
        are errors. All other statuses can just mean that the server does not know OPTIONS; Python's
        `http.server`, for example, answers 501 then.
        """
        reply = await self._http.look(self.url, "OPTIONS")
        if reply.status in (401, 403, NOT_FOUND) or reply.status > NOT_IMPLEMENTED:
            raise await with_offers(of_server(self._refusal(reply, 0)), self._http)

    def _refusal(self, reply: Reply, sent_bytes: int, asked: URL | None = None) -> PenstockError:
        url = config.shown_url(str(asked)) if asked else self._shown_url
        message = f"{url} answered {reply.status}: {complaint(reply.body)}"
        too_big = too_large(self._shown_url, sent_bytes)
        return by_status(reply.status, reply.headers, message, too_large=too_big, may_be_model=True)


class Preset(NamedTuple):
    """`path`: the address of the predictions, below the server's root. `health`: an address that
    answers 200 if the model is there. `answers`: a JSON pointer to the array of answers, or
    `LINES`; None: the whole answer is the array, or the answer's field `predictions` is.
    """

    path: str = ""
    request: str = "json"
    answers: str | None = None
    health: str | None = None
    template: str | None = None


PRESETS: Final[Mapping[str, Preset]] = {
    "kserve-v1": Preset("/v1/models/{name}:predict", "instances", health="/v1/models/{name}"),
    "tf-serving": Preset(
        "/v1/models/{name}{/versions/version}:predict",
        "instances",
        health="/v1/models/{name}{/versions/version}",
    ),
    # For Vertex `model.url` is the whole address of the endpoint.
    "vertex": Preset("", "instances"),
    "mlflow": Preset("/invocations", "inputs", health="/ping"),
    "sagemaker": Preset("/invocations", "ndjson", LINES, "/ping"),
    "bentoml": Preset("/{name}", template='{"rows":[{rows}]}', health="/readyz"),
    "litserve": Preset("/predict", health="/health"),
    "ray-serve": Preset("/{name}", health="/-/healthz"),
}


class Envelope(NamedTuple):
    """What the adapter needs: two addresses, the place of the answers, and a function that encodes
    a batch of rows.
    """

    path: str
    health: str | None
    answers: str | None
    encode: Callable[[Sequence[Payload]], Body]
    is_single: bool


def envelope(settings: config.Model) -> Envelope:
    """Make the envelope from the settings. The preset fills in what the settings leave open."""
    preset = PRESETS[settings.preset] if settings.preset else Preset()
    template = settings.template or preset.template
    path = settings.path if settings.path is not None else preset.path
    health = settings.health if settings.health is not None else preset.health
    answers = settings.answers if settings.answers is not None else preset.answers
    # "json" is the default. It only says that rows are JSON, and the envelopes of all presets carry
    # JSON.
    name = preset.request if settings.request == "json" else settings.request
    form = request_forms.find(name)
    encode = form.encode
    if template is not None:
        elements = base64_texts if form.name == "b64" else _json_elements
        if ROWS not in template or (elements is _json_elements and form.takes != "json"):
            raise usage(
                f"model.template = {template!r}: write JSON with {ROWS} where the rows go, as in "
                '{"data": [{rows}]}, and leave model.request at json, or set it to b64 for pictures'
            )
        encode = _by_template(template, elements)
    filled = _filled(path, settings)
    return Envelope(
        filled, _filled(health, settings) if health else None, answers, encode, form.single
    )


def _filled(path: str, settings: config.Model) -> str:
    versions = f"/versions/{settings.version}" if settings.version else ""
    path = path.replace("{/versions/version}", versions).replace("{name}", settings.name)
    return path.replace("{version}", settings.version or "")


def _json_elements(payloads: Sequence[Payload]) -> Iterator[bytes | memoryview]:
    return (payload.body for payload in cast("Sequence[JsonRows]", payloads))


def _by_template(
    template: str, elements: Callable[[Sequence[Payload]], Iterator[bytes | memoryview]]
) -> Callable[[Sequence[Payload]], Body]:
    begin, _, end = template.partition(ROWS)
    head, tail = begin.encode(), end.encode()

    def encode(payloads: Sequence[Payload]) -> Body:
        return Body(head + b",".join(elements(payloads)) + tail, _JSON)

    return encode
