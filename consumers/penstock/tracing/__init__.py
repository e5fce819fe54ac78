"""Traces: which objects have a trace, and the spans that are made of the times that the
worker keeps.

Rule: every object costs a decision; spans are made only of the objects that are sampled. Nothing
here knows the SDK (adapters/otel/ does). Owner: the wiring makes one `Tracer` if traces are
configured.
"""
