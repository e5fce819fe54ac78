"""Traces: which objects have one, and the spans that are made of the times that the worker keeps.

Rule: for an object that is not sampled a decision is made, but no span. Nothing here knows the SDK
(adapters/otel/ does). Owner: the wiring makes one `Tracer` if traces are configured.
"""
