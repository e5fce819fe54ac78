"""`penstock scenes`: makes one picture of an instant from the predictions of many streams.

    line → rekey → line → arrival → site → ledger → publish
    Kafka          Kafka   decode   decide  changelog  Kafka

The modules of `core` decide, and know no clock and no Kafka; begin with `core/site`. `changelog`
says which worker may write a site's state, `packing` makes records that their topics accept, and
`ledger` writes decisions down and publishes them. `engine` runs all of it on our own Kafka
adapters, `faust` on Faust.
"""
