"""Tools to test a pipeline without services and without waiting: virtual time.
`consumers.adapters.memory` has the ports.
"""
