"""Traces: decides of which objects spans are sent, and makes these spans from the times that the
worker measures.

Rule: every object costs a decision; spans are made only of the objects that are sampled. Nothing
here knows the SDK (adapters/otel/ does). Owner: the wiring makes one `Tracer` if traces are
configured.
"""
