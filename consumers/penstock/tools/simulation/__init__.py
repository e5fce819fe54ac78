"""Tests a pipeline without services and without waiting, by virtual time and by the simulation of a
whole world from a seed. A test of a single case uses `penstock.adapters.memory` instead.
"""
