"""Runs real workers on real services while processes die, freeze and come back; then runs the
judge.

Rule: `plan` decides from a seed what happens at which time, `run` does it, `report` tells the
outcome. A run disturbs only processes that it started itself. The caller of a run makes the
`Place`.

`__main__` is the run with rows; `hosts_run`, `scenes_run` and `chain_run` are the other three.
"""
