"""The work of `penstock dlq`: lists dead letters, sends the references of chosen ones back, and
lets stopped lines go on.
"""
