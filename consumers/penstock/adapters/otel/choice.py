"""Opens the exporter of traces if one is configured.

Rule: without `traces.endpoint` nothing of OpenTelemetry is imported. Owner: the application.
"""

from penstock import config
from penstock.errors import EXIT_USAGE, Fatal
from penstock.ports import Spans


def open_spans(settings: config.Traces) -> Spans | None:
    """Raises `Fatal` if the SDK is not installed."""
    if settings.endpoint is None:
        return None
    try:
        from penstock.adapters.otel.exporter import OtlpSpans  # noqa: PLC0415
    except ModuleNotFoundError:
        raise Fatal(
            "traces.endpoint is set, and traces need OpenTelemetry: pip install "
            "'penstock-stream[otel]', or leave the endpoint out",
            exit_code=EXIT_USAGE,
        ) from None
    return OtlpSpans(settings.endpoint, settings.headers)
