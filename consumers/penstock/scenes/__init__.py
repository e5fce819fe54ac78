"""One picture from many streams: `penstock scenes`.

    line → rekey → line → arrival → site → ledger → publish
    Kafka          Kafka   decode   decide  changelog  Kafka

`rules`, `arrival`, `state`, `members`, `feed_progress`, `scene_choice`, `closing` and `site` are
the core: they decide, and know no clock and no Kafka. `sites_due` says when a site is to be looked
at, `changelog` whose turn it is to write, `packing` what fits a record; `ledger` writes down and
publishes. `engine` is the worker on our own adapters, `faust` the same on Faust.
"""
