"""What waits, and moves things from one decision to the next.

In the order of the flow: consume, download, expand, microbatch, predict, publish, reject, settle.
The other files help one of these: `admission` tells a reading when it may go on.
"""
