"""Sends the spans of traces. The SDK is an extra, so only this folder imports it, and only if
`traces.endpoint` is set.
"""

from penstock import config
from penstock.packages import missing_extra
from penstock.ports import Spans


def open_spans(settings: config.Traces) -> Spans | None:
    """The exporter to `traces.endpoint`; None if `traces.endpoint` is not set. Raises `Fatal` if
    the SDK is not installed.
    """
    if settings.endpoint is None:
        return None
    try:
        from penstock.adapters.otel.exporter import OtlpSpans  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra("traces.endpoint", "otel", error) from None
    return OtlpSpans(settings.endpoint, settings.headers)
