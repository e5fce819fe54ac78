"""One picture from many streams: `penstock scenes`.

    rekey → arrival → site → ledger → publish
    Kafka    decode   decide  table    Kafka

`rules`, `arrival`, `state`, `members`, `slots` and `site` are the core: they decide, and know no
Faust, no clock and no Kafka. `app` is the Faust application around them.
"""
