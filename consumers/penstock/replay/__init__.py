"""`penstock replay`: answers again what was announced before, beside the live group.

Rule: which offsets are replayed is decided once, at the first start, and written down, so that "2
days ago" does not move. The pipeline is the worker's own, in a group of its own: it commits no
offset of the live one, and writes to a topic that the live worker does not use. While the live
group is behind, it reads nothing (docs/replay.md).

    span             which offsets, written down
    worker_settings  configuration and settings of the worker that replays
    pacing           looks at the live group and at the replay's progress
    diff             compares former and new answers row by row
    report           the summary for people
    job              runs all of it
"""
