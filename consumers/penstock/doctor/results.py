"""Checks that results can be written, and that killed workers have left no unfinished uploads of
results.

Rule: to check that results may be written, an object is written beside the results, under a name of
its own, and removed again. Owner: `examine`.
"""

import secrets
from contextlib import aclosing
from datetime import datetime
from typing import Final

from penstock import config
from penstock.adapters.result_stores.choice import leftovers_of, open_results
from penstock.core.records.result_template import Template, parsed
from penstock.doctor.finding import Finding
from penstock.errors import usage
from penstock.ports import Location

# An upload that was begun longer ago than this is a leftover: no result takes a day.
LEFTOVER_S: Final = 86_400


async def look_at_results(cfg: config.Config, template: str) -> list[Finding]:
    try:
        names = parsed(template)
    except ValueError as error:
        raise usage(f"output.objects: {error}") from None
    if "{" in names.bucket:
        said = f"{template}; its bucket is found with the first result"
        return [Finding("results", "ok", said)]
    probe = Location(names.bucket, _probe_key(names))
    async with aclosing(open_results(cfg, template)) as results:
        kept = await results.try_write(probe)
    if kept is None:
        return [Finding("results", "ok", f"{template}; an object could be written and removed")]
    said = (
        f"{template}: an object could be written, but not removed: {kept}. A worker needs only to "
        f"write. Remove {probe.key} of {names.bucket or 'this machine'} by hand"
    )
    return [Finding("results", "mind", said)]


def _probe_key(names: Template) -> str:
    """A new key in the folder that all results share. It must be this folder, because rights may
    differ by folder.
    """
    folder = names.key.partition("{")[0].rpartition("/")
    return f"{folder[0]}{folder[1]}penstock-doctor-{secrets.token_hex(8)}"


async def look_at_leftovers(cfg: config.Config, template: str, now: datetime) -> list[Finding]:
    """Look for unfinished uploads of killed workers. Such uploads appear in no listing of objects,
    but cost storage.
    """
    leftovers = leftovers_of(cfg, template)
    if leftovers is None:
        return []
    bucket = parsed(template).bucket
    async with aclosing(leftovers):
        begun = await leftovers.begun(bucket) if "{" not in bucket else None
    old = [one for one in begun or () if (now - one).total_seconds() > LEFTOVER_S]
    if not old:
        return []
    said = (
        f"{len(old):,} uploads were begun more than a day ago and never completed, the oldest on "
        f"{min(old):%Y-%m-%d}: give the bucket a rule that aborts incomplete multipart uploads "
        f"(aws s3api put-bucket-lifecycle-configuration --bucket {bucket})"
    )
    return [Finding(f"bucket {bucket}", "mind", said)]
