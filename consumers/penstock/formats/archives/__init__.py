"""Compression, tar and zip."""
