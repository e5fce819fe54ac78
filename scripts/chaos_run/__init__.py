"""Real workers on real services while processes die, freeze and come back; then the judge.

Rule: `plan` decides what happens when, from a seed; `run` does it, `report` says what came of it.
Faults reach only processes that this run started. The caller of a run brings the `Place`.
"""
