"""`penstock bench`: measures what a worker costs, and how many streams it can serve, with real
services on this machine.

Rule: everything that is measured runs in its own process, on topics and a bucket that are made for
the run and removed after it. Times are the broker's (LogAppendTime). A result is a ratio of two
rates that were measured in turn within one run, because a rate alone depends on the machine.
"""
