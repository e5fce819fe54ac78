"""Two regions on real services, a slow line between them, and what happens when one of them dies.

`python -m regions_run`; `scripts/regions` is the way to start it.
"""
