"""Decisions. The code here never waits, never asks a clock and knows no client library: the time is
an argument, and a decision is returned to the caller, who acts on it. Therefore a test can reach
every case, and runs fast.
"""
