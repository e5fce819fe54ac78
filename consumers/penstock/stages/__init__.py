"""The stages wait, and move data from one decision to the next.

The stages in the order of the flow: consume, download, expand, microbatch, predict, publish,
dead_letters, settle. Each of the other files helps one stage. For example, `reading_permits` tells
the reader of an object when it may go on.
"""
