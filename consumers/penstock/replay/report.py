"""Puts a replay's summary into words for people.

Rule: all figures come from the summary. Owner: the command.
"""

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
        examples = ((row.id, _json(row.then), _json(row.now)) for row in found.examples)
        parts.append(folded(("disagreements", "then", "now"), examples))
    return Group(*parts)


def lines(found: Difference) -> list[str]:
    """The figures of the comparison, as lines of text."""
    if not found.rows:
        return ["Nothing to compare: no row of the range was answered both then and now."]
    equal = found.equal / found.rows
    agree = (
        f"{found.agreed:,} of {found.rows:,} rows agree with then: {_percent(found.agreement)} "
        f"({_percent(found.low)} to {_percent(found.high)} in 95 of 100 cases); "
        f"{_percent(equal)} are equal byte by byte."
    )
    alone = {
        "were answered then only": found.only_then,
        "now only": found.only_now,
        "came again and are counted once": found.repeated,
        "could not be compared, as their counterparts were too far away": found.unseen,
    }
    others = "; ".join(f"{count:,} {what}" for what, count in alone.items() if count)
    return [agree, f"{others}."] if others else [agree]


def _percent(share: float) -> str:
    """A share as a percentage. A share below 1 is shown as at most 99.9999 %, so that 100 % always
    means all.
    """
    return "100 %" if share == 1.0 else f"{min(100 * share, 99.9999):.4f} %"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
