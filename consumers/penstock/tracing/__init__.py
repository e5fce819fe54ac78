"""Traces: which objects have one, and the spans that are made of the times that the worker keeps.

Rule: for an object that is not sampled one decision is made and no span. Nothing here knows the
SDK (adapters/otel/ does). Owner: the wiring makes one `Tracer` if traces are configured.
"""
