"""Traces: of which objects spans are sent, made from the times that the worker measures."""
