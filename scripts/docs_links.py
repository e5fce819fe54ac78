"""A hook of MkDocs: a link to a file outside of docs/ is replaced by its text.

Rule: pages link to sources and schemas, which the site does not have. Such a file must exist in the
repository, or the build fails. Owner: scripts/docs.
"""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#\s]+)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    def text_of(link: re.Match[str]) -> str:
        if not (ROOT / link[2]).exists():
            raise FileNotFoundError(f"{page.file.src_path}: {link[0]} leads nowhere")
        return link[1]

    return _OUTSIDE.sub(text_of, markdown)
