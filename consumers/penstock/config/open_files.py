"""How many files, connections among them, this process may have open."""

import resource


def most_open_files() -> int | None:
    """None: there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
