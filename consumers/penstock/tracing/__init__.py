"""Traces: decides of which objects spans are sent, and makes these spans from the times that the
worker measures.

Rule: a decision is made for every object, but spans are made only of the sampled objects. Only
adapters/otel/ knows the SDK.
"""
