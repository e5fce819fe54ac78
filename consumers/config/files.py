"""Files that settings name: one that cannot be read is refused before a worker needs it.

Rule: it must be there and be readable; what is in it is judged by the adapter that uses it. Only
what is to run is asked for its files: a look at the topics needs no token of the model. Owner: the
commands `config` and `run`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from consumers.config.loading import Resolved, section_shown
from consumers.config.whole import sections_of
from consumers.variables import usage

_OF_MODEL: Final = ("ssl_cafile", "token_file")
_FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "kafka": ("ssl_cafile", "ssl_certfile", "ssl_keyfile"),
    "objects": ("ssl_cafile",),
    "stores": ("ssl_cafile", "key_file"),
    "model": _OF_MODEL,
    "models": _OF_MODEL,
}


def check_files(resolved: Resolved) -> None:
    """Raises `Fatal` (exit 2) for the first that cannot be read, with the place of the setting."""
    for section, keys in sections_of(msgspec.to_builtins(resolved.config)).items():
        for key in _FILES.get(re.split(r"[.\[]", section)[0], ()):
            if keys[key] is None:
                continue
            try:
                Path(keys[key]).open("rb").close()
            except OSError as error:
                source = resolved.sources.get(f"{section}.{key}", "configuration")
                setting = f"{section_shown(section, keys)}{key} = {keys[key]!r}"
                raise usage(
                    f"{source}: {setting} cannot be read: {error.strerror}; correct the path, or "
                    "leave the key out"
                ) from None
