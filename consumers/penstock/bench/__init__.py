"""`penstock bench`: what the worker costs and holds, measured on real services of this machine.

Rule: everything measured runs in its own process, on topics and a bucket that are made for the run
and removed after it. Times are the broker's (LogAppendTime). Only ratios of things that were
measured in alternation are results; absolute rates are notes.
"""
