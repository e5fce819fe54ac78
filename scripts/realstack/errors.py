"""The errors of the stack: a text for a person, and an exit code for a script."""

EXIT_FAILED = 1
EXIT_MISSING = 3


class StackError(Exception):
    """A service did not come up, or is not up."""

    exit_code = EXIT_FAILED


class Missing(StackError):
    """The machine lacks something that only its owner can install."""

    exit_code = EXIT_MISSING


class NotReady(Exception):
    """A probe's answer: the service is not ready yet, and why."""
