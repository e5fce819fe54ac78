"""What operators use: page and status, checks of the topics, comparison of a shadow, the supervisor
of several workers.
"""
