"""Puts a replay's summary into words for people."""

from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.core.comparing.comparison import AgreementShare
from penstock.messages.command_json import Difference, Replayed
from penstock.terminal_text import folded, worst_streams


def render(done: Replayed) -> RenderableType:
    """The summary in the form that `rich` prints: how far the replay has come, and how the answers
    differ.
    """
    said = Text(sentence(done), no_wrap=True, overflow="ignore")
    return said if done.difference is None else Group(said, _difference(done.difference))


def sentence(done: Replayed) -> str:
    """The summary in a sentence."""
    rejected = sum(done.rejected.values())
    said = f"{done.done:,} of {done.messages:,} messages"
    said += f": {done.rows:,} rows to {done.to} in {done.took_s:.1f} s"
    if rejected:
        codes = ", ".join(f"{code} {number:,}" for code, number in done.rejected.items())
        said += f", {rejected:,} rejected ({codes})"
    if done.skipped:
        said += f", {done.skipped:,} objects of other streams skipped"
    if done.idle_s:
        said += f"; waited {done.idle_s:.0f} s for the live group"
    if not done.complete:
        said += ". Not at the end: the same command goes on there"
    elif not done.messages:
        said += ". There is no message with a time between the two"
    elif not done.rows and not done.skipped:
        said += ". All was answered by earlier starts: another --name begins anew"
    return said + "."


def _difference(found: Difference) -> RenderableType:
    parts: list[RenderableType] = [Text(line) for line in lines(found)]
    if found.worst:
        worst = ((one.stream, AgreementShare(one.rows, one.agreed)) for one in found.worst)
        parts.append(worst_streams(worst))
    if found.examples:
        names = ("disagreements", "object", "columns", "then", "now")
        examples = (
            (row.id, _name(row.object), _json(row.columns), _json(row.then), _json(row.now))
            for row in found.examples
        )
        parts.append(folded(names, examples))
    return Group(*parts)


def lines(found: Difference) -> list[str]:
    """The figures of the comparison, as lines of text."""
    agree = "Nothing to compare: no row of the range was predicted both then and now."
    if found.rows:
        agree = (
            f"{found.agreed:,} of {found.rows:,} rows that were predicted then and now agree: "
            f"{_percent(found.agreement)} "
            f"({_percent(found.low)} to {_percent(found.high)} in 95 of 100 cases); "
            f"{_percent(found.equal / found.rows)} are equal to the last digit."
        )
    failed = {
        "failed now only": found.failed_now,
        "failed then only": found.failed_then,
        "failed both times with another code": found.other_error,
        "failed both times with the same code": found.same_error,
    }
    alone = {
        "were answered then only": found.only_then,
        "now only": found.only_now,
        "came again and are counted once": found.repeated,
        "could not be compared, as their counterparts were too far away": found.unseen,
    }
    counted = (
        "; ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        for counts in (failed, alone)
    )
    return [agree, *(f"{line}." for line in counted if line)]


def _percent(share: float) -> str:
    """A share as a percentage. A share below 1 is shown as at most 99.9999 %, so that 100 % always
    means all.
    """
    return "100 %" if share == 1.0 else f"{min(100 * share, 99.9999):.4f} %"


def _name(about: Any) -> str:
    return f"{about['bucket']}/{about['key']}" if about else ""


def _json(value: object) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()
