"""`penstock replay`: answers earlier messages again, beside the live group.

Rule: the offsets to replay are decided once, when the replay is first started, and written down, so
that "2 days ago" does not move. The replay runs the worker's own pipeline in a group of its own,
commits no offset of the live group, and writes to a topic that the live worker does not use. While
the live group is behind, the replay reads nothing.

    decided_range    decides the offsets, and writes them down
    worker_settings  configuration and settings of the worker that replays
    pacing           holds the replay while the live group is behind, and ends the replay
    diff             compares the new answers with the former ones, row by row
    former_results   reads former answers from result objects
    report           the summary for people
    run_replay       runs all of it
"""
