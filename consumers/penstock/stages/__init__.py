"""The stages wait, and move data from one decision to the next.

In the order of the flow: consume, download, expand, microbatch, predict, publish, reject, settle.
The other files help one of these: `reading_permits`, for example, tells a reader when it may go on.
"""
