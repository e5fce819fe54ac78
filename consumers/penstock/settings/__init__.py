"""Translates the configuration into frozen values, one for each part of the pipeline, which never
sees the configuration.
"""
