"""What a package of yours may import to add a format or a form of request.

Rule: only this module, `penstock` and `penstock.testing` are for other programs; every other module
may change with any version.
"""

from penstock.adapters.model_servers.request_forms import Body, RequestForm
from penstock.core.rows.payload import BytesRows, Columns, Form, JsonRows, Matrix, Payload
from penstock.errors import Poison
from penstock.formats.format import Format, makes
from penstock.formats.parser_chain import PLAIN_STEP_BYTES, Parser
from penstock.formats.runs import RowOptions, Run

__all__ = [
    "PLAIN_STEP_BYTES",
    "Body",
    "BytesRows",
    "Columns",
    "Form",
    "Format",
    "JsonRows",
    "Matrix",
    "Parser",
    "Payload",
    "Poison",
    "RequestForm",
    "RowOptions",
    "Run",
    "makes",
]
