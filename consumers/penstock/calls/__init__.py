"""Calls to services that may fail: requests to a model, the gate before them, outages."""
