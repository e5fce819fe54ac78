"""What a slow shadow costs live work, measured on the real services.

Rule: with it and without take turns, on the same services. Started by `scripts/shadow-cost`.
"""
