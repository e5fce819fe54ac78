"""The one error of this package."""


class SchemaError(ValueError):
    """Bytes that are not what they should be; the message is for whoever wrote them."""
