"""Servers that take and give JSON: envelopes of well-known ones, embeddings."""
