"""`penstock bench`: what a worker costs, and how many streams it serves, with real services on this
machine.

Rule: everything that is measured runs in its own process, on topics and a bucket made for the run
and removed after it. Times are the broker's (LogAppendTime). A result is a ratio of two rates
measured in turn within one run, because a rate alone depends on the machine.
"""
