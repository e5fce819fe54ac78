"""Which fields a prompt has, and what stands in their place."""

import pytest

from penstock.adapters.model_servers.chat import Prompt
from penstock.core.rows.origin import About
from penstock.messages.reference import Inline, Reference

FRAME = About(
    "cam", None, Reference(bucket="b", key="a/{1}.jpg", event_time="2026-01-02T03:04:05Z")
)


@pytest.mark.parametrize(
    ("template", "about", "text"),
    [
        ("Is there a person?", None, "Is there a person?"),
        ("", FRAME, ""),
        ("{stream}: {key}.", FRAME, "cam: a/{1}.jpg."),
        ("{{stream}} {member}{bucket}", FRAME, "{stream} b"),
        ("{event_time}", FRAME, "2026-01-02T03:04:05.000Z"),
        ("{attributes.line}", FRAME, ""),
        (
            "{stream} {key} {attributes.a b}",
            About("s", None, Inline(rows=(), attributes={"a b": 1.5})),
            "s  1.5",
        ),
        ("{attributes.on}", About("s", None, Inline(rows=(), attributes={"on": False})), "false"),
        ("{stream}", None, ""),
    ],
)
def test_fields_stand_for_what_the_sender_told(
    template: str, about: About | None, text: str
) -> None:
    assert Prompt(template).text(about) == text


@pytest.mark.parametrize("template", ["{}", "{0}", "{row}", "{stream:>9}", "{stream!r}", "{", "}"])
def test_a_field_that_is_none_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Prompt(template)
