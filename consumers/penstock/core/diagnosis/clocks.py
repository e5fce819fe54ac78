"""By how much our clock is ahead of a server's that tells its time in an answer.

Rule: only what the answer proves counts. It was made somewhere between question and answer, so a
process that waits long for a processor, or a slow way, is no wrong clock.
"""


def ahead_s(asked_s: float, answered_s: float, theirs_s: float) -> float:
    """`asked_s`, `answered_s`: our time then. `theirs_s`: their time, in whole seconds."""
    middle_s = (asked_s + answered_s) / 2 - (theirs_s + 0.5)
    doubt_s = (answered_s - asked_s) / 2
    return max(0.0, middle_s - doubt_s) if middle_s > 0 else min(0.0, middle_s + doubt_s)
