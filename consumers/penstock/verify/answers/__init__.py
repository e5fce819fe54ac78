"""Answers shown to people: `penstock trace`, `penstock watch`, and `penstock run --dry-run`."""
