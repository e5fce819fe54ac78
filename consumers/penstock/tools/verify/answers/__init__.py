"""The commands that show answers to people: `penstock trace`, `penstock watch`, and `penstock run
--dry-run`.
"""
