"""Tools to test a pipeline without services and without waiting: virtual time, and the simulation
of whole worlds from a seed. For tests of single cases there are the ports in
`penstock.adapters.memory`.
"""
