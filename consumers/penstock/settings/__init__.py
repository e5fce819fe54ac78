"""Translates the configuration to frozen values, one for each part of the pipeline.

Rule: the parts get these plain values and never see the configuration.
"""
