"""Calling a service that may be ill: the gate, the outage, the start, the canary."""
