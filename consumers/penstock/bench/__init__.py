"""`penstock bench`: what the worker costs and holds, measured on real services of this machine.

Rule: everything measured runs in processes of its own, on topics and a bucket made for the run and
removed after it. Time is the broker's (LogAppendTime); ratios of things measured in alternation are
results, absolute rates are notes.
"""
