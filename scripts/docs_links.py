"""A hook of MkDocs that replaces each link to a file outside of docs/ by the link's text.

Rule: pages link to sources and schemas, which the site does not have. If such a file does not exist
in the repository, the build fails. Owner: scripts/docs.
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
