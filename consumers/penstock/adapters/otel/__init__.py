"""Spans of traces to a receiver of OpenTelemetry's protocol.

Rule: only this folder knows the SDK, which is an extra; it is imported if traces are configured.
"""
