"""What a fleet costs, measured on the running stack.

`python -m fleet_run`; `scripts/fleet` is the way to start it.
"""
