"""The outcome of a run: its figures, and which promises were broken.

Rule: every number comes from the topics or from the log of the faults. A broken promise is named
with its figure. `problems` is empty only if all promises were kept. Owner: the run.
"""

from collections import Counter
from collections.abc import Iterator
from statistics import median

from chaos_run.faults import Struck
from chaos_run.run import Outcome

# The goal for the time from `kill -9` to the first new row: a session (8 s) and a rebalance.
RECOVERY_GOAL_S = 10.0
# After this time a fault no longer delays the group.
SETTLED_MS = 10_000
KEPT_EXITS = 5


def tell(outcome: Outcome) -> bool:
    """Print the outcome. Returns whether every promise was kept."""
    print(text(outcome))
    found = problems(outcome)
    for problem in found:
        print(f"VIOLATED: {problem}")
    print("a promise was broken" if found else "every promise was kept")
    return not found


def problems(outcome: Outcome) -> list[str]:
    found = [outcome.unfinished] if outcome.unfinished else []
    verdict = outcome.verdict
    found += [
        f"{violation.kind} at {violation.topic}/{violation.partition}/{violation.offset}: "
        f"{violation.text}"
        for violation in verdict.violations
    ]
    rows = outcome.plan.rows + len(outcome.watch.poison_rows)
    if verdict.rows != rows:
        found.append(f"{verdict.rows:,} rows on the topic, {rows:,} were announced")
    found += _poisons(outcome)
    if verdict.duplicates > outcome.duplicates_allowed:
        found.append(
            f"{verdict.duplicates:,} duplicates, at most {outcome.duplicates_allowed:,} are allowed"
        )
    return found + [f"another row's answer: {text}" for text in outcome.watch.wrong]


def _poisons(outcome: Outcome) -> Iterator[str]:
    """A sentence for each poison that is not answered, or that is answered by codes that are not
    its own.
    """
    for poison in outcome.plan.poisons:
        codes = outcome.watch.poison_codes.get(poison.key, set())
        if not codes or not codes <= set(poison.codes):
            said = ", ".join(sorted(codes)) or "nothing"
            yield f"{poison.key} was answered by {said}, not by {' or '.join(poison.codes)}"


def text(outcome: Outcome) -> str:
    return "\n".join([*_faults(outcome), "", *_figures(outcome), *_exits(outcome)])


def _figures(outcome: Outcome) -> Iterator[str]:
    verdict, plan = outcome.verdict, outcome.plan
    count = len(outcome.struck)
    kinds = Counter(one.kind for one in outcome.struck)
    yield (
        f"rows           {verdict.rows:,} of {verdict.streams} streams in {verdict.objects:,} "
        f"objects, {outcome.took_s:.0f} s, seed {plan.seed}"
    )
    named = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    yield f"faults         {count}: {named}"
    yield f"lost           {verdict.violated.get('lost', 0):,}"
    yield f"out of order   {verdict.violated.get('disorder', 0):,}"
    broken = {k: n for k, n in verdict.violated.items() if k not in ("lost", "disorder")}
    yield f"other          {broken or 0}"
    yield f"wrong answers  {len(outcome.watch.wrong)}"
    if plan.poisons:
        wrong = len([*_poisons(outcome)])
        yield f"poison         {len(plan.poisons) - wrong} of {len(plan.poisons)} answered as such"
    yield (
        f"duplicates     {verdict.duplicates:,}, {verdict.duplicates / max(1, count):,.0f} a fault"
        f"; allowed {outcome.duplicates_allowed:,} "
        f"({outcome.most_rows:,} rows at most in one commit interval)"
    )
    yield from _recoveries(outcome.struck)


def _recoveries(struck: list[Struck]) -> Iterator[str]:
    """The times from kills to new rows. A kill is `alone` if no other fault was near it. Kills that
    were alone have a line of their own.
    """
    took_s: dict[bool, list[float]] = {True: [], False: []}
    for one in struck:
        if one.recovery is not None and one.recovery.took_s is not None:
            until_ms = one.began_ms + one.recovery.took_s * 1000
            alone = not any(
                other.began_ms < until_ms and other.ended_ms > one.began_ms - SETTLED_MS
                for other in struck
                if other is not one
            )
            took_s[alone].append(one.recovery.took_s)
    for alone, name in ((True, "alone"), (False, "with other faults")):
        if times := took_s[alone]:
            yield (
                f"kill to row    {name}: median {median(times):.1f} s, worst {max(times):.1f} s "
                f"of {len(times)} (goal {RECOVERY_GOAL_S:.0f} s)"
            )


def _exits(outcome: Outcome) -> Iterator[str]:
    yield f"exits          {len(outcome.exits)} of workers that ended by themselves"
    for one in outcome.exits[:KEPT_EXITS]:
        yield f"  {one.worker} ended with {one.code}: {one.words}"


def _faults(outcome: Outcome) -> Iterator[str]:
    """One line for each fault. Rows that are repeated before the next fault count as its own."""
    yield (
        f"{'at s':>6} {'fault':<20} {'whom':<28} {'took s':>6} {'rows again':>10} {'first row':>10}"
    )
    struck = outcome.struck
    if not struck:
        return
    zero_ms = struck[0].began_ms - struck[0].planned_s * 1000
    ends_ms = [one.began_ms for one in struck[1:]] + [float("inf")]
    for one, end_ms in zip(struck, ends_ms, strict=True):
        again = outcome.watch.repeats_between(one.began_ms, end_ms)
        took_s = one.recovery.took_s if one.recovery else None
        whom = one.target + (f" {one.partitions}" if one.partitions else "")
        yield (
            f"{(one.began_ms - zero_ms) / 1000:6.1f} {one.kind:<20} {whom:<28} "
            f"{(one.ended_ms - one.began_ms) / 1000:6.1f} {again:10,} "
            f"{f'{took_s:.1f} s' if took_s is not None else '':>10}"
        )
