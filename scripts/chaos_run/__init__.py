"""Real workers on real services while processes die, freeze and come back; then the judge.

Rule: `plan` decides from a seed what happens when, `run` does it, `report` tells the outcome. A run
disturbs only processes that it started itself. Its caller makes the `Place`.

`__main__` is the run with rows; `hosts_run`, `scenes_run` and `chain_run` are the other three.
"""
