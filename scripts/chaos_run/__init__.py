"""Real workers on real services while processes die, freeze and come back; then the judge.

Rule: `plan` decides from a seed what happens when, `run` does it, `report` tells the outcome.
Faults reach only processes that this run started. The caller of a run brings the `Place`.
"""
