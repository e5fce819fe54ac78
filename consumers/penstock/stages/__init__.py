"""The stages wait, and move data from one decision to the next.

The stages in the order of the flow: consume, download, expand, microbatch, predict, publish,
dead_letters, settle. Each of the other files helps one stage. For example, `read_object` makes one
try of a fetcher.
"""
