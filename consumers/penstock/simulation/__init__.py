"""Tests a pipeline without services and without waiting: virtual time, and the simulation of a
whole world from a seed. A test of a single case uses `penstock.adapters.memory` instead.
"""
