"""`penstock replay`: answers again what was announced before, beside the live group.

Which offsets. In each partition, from the first record whose Kafka time is `--since` or later, up
to the first one at `--until` or later (without `--until`: up to the end at the first start). All
records between the two are replayed, also those whose time is unknown or out of order. If no record
has a time, the range is empty. The range is decided once, at the first start, and written down
(`span.py`): a later start with the same options uses the same range, so that "2 days ago" does not
move.

What ends it. The worker's own pipeline reads up to the end of each partition and commits that
end; when the group has committed all ends, the command ends with code 0 and a summary. After a
stop or a crash it goes on as a worker does: its group is `<group>.replay.<name>`, its promises are
those of `delivery.guarantee`, and its transactional ids contain its own group.

What it does not touch. It has another group, so it commits no offset of the live one. `--to` must
be a topic that the live worker does not use; dead letters go to `<to>.dlq`. It writes no result
objects and no scenes.

Beside the live group. It looks at the live group every second. While that is behind, the replay
reads nothing and sends no row to the model. While it is at work, all rows of the replay count as
bulk: one batch at a time with a pause after each. It fetches fewer objects at a time, and its
process has a low priority.

    span             which offsets, written down
    worker_settings  configuration and settings of the worker that replays
    pacing           looks at the live group and at the replay's progress
    diff             compares former and new answers row by row
    report           the summary for people
    job              runs all of it
"""
