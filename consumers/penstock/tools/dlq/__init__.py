"""The work of `penstock dlq`: lists dead letters, sends chosen references back, lets stopped lines
go on.
"""
