"""The sources of a worker, one for each kind of input: topics, several regions, a bounded span, or
URLs.
"""
