"""Decoders as processes, and what they do to nobody else."""
