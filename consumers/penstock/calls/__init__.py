"""Calling a service that may fail: requests to a model, the gate before them, its outages, the wait
at the start.
"""
