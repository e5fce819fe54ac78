"""Translates the configuration into frozen values, one for each part of the pipeline.

Rule: the parts get these plain values and never see the configuration.
"""
