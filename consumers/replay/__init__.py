"""`penstock replay`: what was announced before is answered again, beside the live group.

Which offsets. A record is in the range by the time that Kafka has for it: from the first one at
`--since` or later, up to the first one at `--until` or later (without it: to the end as it is at
the first start), in each partition. Between these two all records are replayed, also those whose
time is unknown or out of order; where no record has a time, there is nothing to be found by it. The
range is decided once, at the first start, and written down (`span.py`): a later start with the same
options goes on with the same range, however long ago "2 days ago" was said.

What ends it. The worker's own pipeline reads up to the end of each partition and commits that
end; when the group has committed all of them, the command ends with code 0 and a summary. After a
stop or a crash it goes on as a worker does: its group is `<group>.replay.<name>`, its promises are
those of `delivery.guarantee`, and its transactional ids are its own as the group is.

What it does not touch. Another group, so no offset of the live one; an output topic that must be
none of those in use, `--to`, with its dead letters on `<to>.dlq`; no result objects, no scenes.

Beside the live group. Every second the live group is looked at: while it is behind, nothing is read
and no row goes to the model; while it is at work, all rows of the replay are bulk, one batch at a
time with a rest after each; fewer objects are fetched at a time, and the process is nice.

    span    which offsets, written down
    plan    the worker that replays, as configuration and settings
    watch   the live group, and how far the replay is
    diff    then and now, row by row
    report  what it comes to, for people
    main    the whole of it
"""
