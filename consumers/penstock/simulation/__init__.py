"""Tools to test a pipeline without services and without waiting: virtual time, and the simulation
of whole worlds from a seed. `penstock.adapters.memory_` are the ports for tests of single cases.
"""
