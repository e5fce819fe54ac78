"""How much a slow shadow slows down live work, measured on the real services.

Rule: runs with and without a shadow take turns, on the same services. Started by
`scripts/shadow-cost`.
"""
