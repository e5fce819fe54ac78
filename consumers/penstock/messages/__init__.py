"""The messages that penstock reads and writes (references, predictions, dead letters and others),
and their JSON Schemas.

Rule: every shape is declared once, as a msgspec Struct; the `*.schema.json` files are generated
from the Structs by `python -m penstock.messages.json_schemas`. This package imports nothing else of
`penstock`, so that any program may use it to read and write these messages.
"""
