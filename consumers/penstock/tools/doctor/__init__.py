"""`penstock doctor`: checks each thing that a worker needs. If something is wrong, it says how to
mend it.
"""
