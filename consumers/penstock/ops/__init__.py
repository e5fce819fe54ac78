"""For operators: a worker's page and status, checks of the topics, comparing a shadow with the live
model, and several workers under one supervisor.
"""
