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
    text = Text(sentence(done), no_wrap=True, overflow="ignore")
    return text if done.difference is None else Group(text, _difference(done.difference))


def sentence(done: Replayed) -> str:
    """The summary in a sentence."""
    rejected = sum(done.rejected.values())
    message = f"{done.done:,} of {done.messages:,} messages"
    message += f": {done.rows:,} rows to {done.to} in {done.took_s:.1f} s"
    if rejected:
        codes = ", ".join(f"{code} {number:,}" for code, number in done.rejected.items())
        message += f", {rejected:,} rejected ({codes})"
    if done.skipped:
        message += f", {done.skipped:,} objects of other streams skipped"
    if done.idle_s:
        message += f"; waited {done.idle_s:.0f} s for the live group"
    if not done.complete:
        message += ". Not at the end: the same command goes on there"
    elif not done.messages:
        message += ". There is no message with a time between the two"
    elif not done.rows and not done.skipped:
        message += ". All was answered by earlier starts: another --name begins anew"
    return message + "."


def _difference(difference: Difference) -> RenderableType:
    parts: list[RenderableType] = [Text(line) for line in lines(difference)]
    if difference.worst:
        worst = (
            (stream.stream, AgreementShare(stream.rows, stream.agreed))
            for stream in difference.worst
        )
        parts.append(worst_streams(worst))
    if difference.examples:
        names = ("disagreements", "object", "columns", "then", "now")
        examples = (
            (row.id, _name(row.object), _json(row.columns), _json(row.then), _json(row.now))
            for row in difference.examples
        )
        parts.append(folded(names, examples))
    return Group(*parts)


def lines(difference: Difference) -> list[str]:
    """The figures of the comparison, as lines of text."""
    agree = "Nothing to compare: no row of the range was predicted both then and now."
    if difference.rows:
        agree = (
            f"{difference.agreed:,} of {difference.rows:,} rows that were predicted then and now "
            f"agree: {_percent(difference.agreement)} "
            f"({_percent(difference.low)} to {_percent(difference.high)} in 95 of 100 cases); "
            f"{_percent(difference.equal / difference.rows)} are equal to the last digit."
        )
    failed = {
        "failed now only": difference.failed_now,
        "failed then only": difference.failed_then,
        "failed both times with another code": difference.other_error,
        "failed both times with the same code": difference.same_error,
    }
    alone = {
        "were answered then only": difference.only_then,
        "now only": difference.only_now,
        "came again and are counted once": difference.repeated,
        "could not be compared, as their counterparts were too far away": difference.unseen,
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
