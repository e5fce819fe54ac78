"""The messages that penstock reads and writes, and their JSON Schemas.

Rule: every shape is declared once, as a msgspec Struct; the `*.schema.json` files are generated
(`python -m penstock.messages.json_schemas`). This package imports nothing else of `penstock`.
"""
