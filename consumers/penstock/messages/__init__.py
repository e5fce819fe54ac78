"""What crosses the wire: references in, predictions and dead letters out, and their JSON Schemas.

Rule: every shape is declared once, as a msgspec Struct; the `*.schema.json` files are generated
from them by `python -m penstock.messages.json_schemas`. Imports nothing of `penstock`, so that any
program may read and write these messages.
"""
