"""Tests a pipeline without services and without waiting: virtual time, and a whole world from a
seed. A test of a single case uses `penstock.adapters.memory` instead.
"""
