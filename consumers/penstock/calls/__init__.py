"""Calling a service that may fail: the gate, the outage, the start, the probe row."""
