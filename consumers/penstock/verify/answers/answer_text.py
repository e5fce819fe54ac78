"""An answer, and the object that it is about, in a text for people.

Rule: nothing is cut or escaped here; the callers do that by `terminal_text`. Owner: the commands
that show answers.
"""

import msgspec

from penstock.messages.prediction import Prediction


def object_text(row: Prediction) -> str:
    if row.object is None:
        return "inline" if row.row is None else f"inline, row {row.row}"
    where = f"{row.object.bucket}/{row.object.key}"
    return f"{where}, as a whole" if row.row is None else f"{where}, row {row.row}"


def said(row: Prediction) -> str:
    if row.error is not None:
        return f"{row.error.code}: {row.error.message}"
    if row.result is not None:
        return f"{row.result.rows:,} rows, {row.result.errors:,} errors: {row.result.url}"
    if row.duplicate_of is not None:
        return f"announced before, answered from {row.duplicate_of} on"
    if row.row is None:
        return "no rows"
    return msgspec.json.encode(row.prediction).decode()
