"""What waits, and moves things from one decision to the next; one verb a file.

The alphabet is the order of the flow: consume, download, expand, microbatch, predict,
publish, reject, settle.
"""
