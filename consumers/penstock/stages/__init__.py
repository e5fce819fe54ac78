"""The stages wait, and move data from one decision to the next.

In the order of the flow: consume, download, expand, microbatch, predict, publish, dead_letters,
settle. Each of the other files helps one of these: `reading_permits`, for example, tells the reader
of an object when it may go on.
"""
