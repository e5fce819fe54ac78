"""Decisions. The code here never waits, asks no clock and knows no client library: the time is an
argument, and a decision is returned to the caller, so a test can reach every case.
"""
