"""Refuses settings that name a file which cannot be read, before a worker needs it.

Rule: the file must exist and be readable; the adapter that uses it checks its contents. Only the
commands that run a worker or judge a worker's configuration check this. Other commands must not
fail for a file that they never open. Owner: the commands `config`, `doctor` and `run`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from penstock.config.all_sections import sections_of
from penstock.config.loading import Resolved
from penstock.config.unknown_keys import section_shown
from penstock.errors import usage

_OF_MODEL: Final = ("ssl_cafile", "token_file")
_FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "kafka": ("ssl_cafile", "ssl_certfile", "ssl_keyfile"),
    "objects": ("ssl_cafile",),
    "stores": ("ssl_cafile", "key_file"),
    "model": _OF_MODEL,
    "models": _OF_MODEL,
}


def check_files(resolved: Resolved) -> None:
    """Raises `Fatal` (exit 2) for the first file that cannot be read, with the setting's place."""
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
