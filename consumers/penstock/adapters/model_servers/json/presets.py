"""How known JSON servers are called: the address, the envelope, and the place of the answers.

Rule: a preset only fills in keys that the settings leave open. Pure. Owner: the adapter of the
protocol `http`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, cast

from penstock import config, requests
from penstock.core.rows.payload import JsonRows, Payload
from penstock.errors import usage
from penstock.requests import Body

# The place in a template where the rows are put: JSON elements with commas between them.
ROWS: Final = "{rows}"
# If this stands in the place of a pointer, the answer has one line of JSON for each row.
LINES: Final = "lines"
_JSON: Final = {"Content-Type": "application/json"}


class Preset(NamedTuple):
    """`path`: the address of the predictions, below the server's root. `health`: an address that
    answers 200 if the model is there. `answers`: a JSON pointer to the array of answers, or
    `LINES`; None: the array is the whole answer, or its field `predictions`.
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
    """What the adapter needs: two addresses, the place of the answers, and a function that writes a
    batch.
    """

    path: str
    health: str | None
    answers: str | None
    encode: Callable[[Sequence[Payload]], Body]
    is_single: bool


def envelope(settings: config.Model) -> Envelope:
    """The envelope by the settings; the preset fills in what they leave open."""
    preset = PRESETS[settings.preset] if settings.preset else Preset()
    template = settings.template or preset.template
    path = settings.path if settings.path is not None else preset.path
    health = settings.health if settings.health is not None else preset.health
    answers = settings.answers if settings.answers is not None else preset.answers
    # "json" is the default and only says that rows are JSON, which every preset's envelope carries.
    name = preset.request if settings.request == "json" else settings.request
    form = requests.find(name)
    encode = form.encode
    if template is not None:
        if ROWS not in template or form.takes != "json":
            raise usage(
                f"model.template = {template!r}: write JSON with {ROWS} where the rows go, as in "
                '{"data": [{rows}]}, and leave model.request at json'
            )
        encode = _by_template(template)
    filled = _filled(path, settings)
    return Envelope(
        filled, _filled(health, settings) if health else None, answers, encode, form.single
    )


def _filled(path: str, settings: config.Model) -> str:
    versions = f"/versions/{settings.version}" if settings.version else ""
    path = path.replace("{/versions/version}", versions).replace("{name}", settings.name)
    return path.replace("{version}", settings.version or "")


def _by_template(template: str) -> Callable[[Sequence[Payload]], Body]:
    begin, _, end = template.partition(ROWS)
    head, tail = begin.encode(), end.encode()

    def encode(payloads: Sequence[Payload]) -> Body:
        elements = b",".join([one.body for one in cast("Sequence[JsonRows]", payloads)])
        return Body(head + elements + tail, _JSON)

    return encode
