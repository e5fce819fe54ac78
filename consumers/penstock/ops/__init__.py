"""What operators use: a worker's page and status, the checks of the topics, the comparison of a
shadow with the live model, and the supervisor of several workers.
"""
