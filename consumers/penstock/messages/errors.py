"""The one error of this package."""


class SchemaError(ValueError):
    """A value has none of the shapes it may have; the text says what is wrong and what was
    expected.
    """
