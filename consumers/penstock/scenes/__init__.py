"""`penstock scenes`: makes one picture of an instant from the predictions of many streams.

    line → rekey → line → arrival → site → ledger → publish
    Kafka          Kafka   decode   decide  changelog  Kafka

The modules of `core` decide, and know no clock and no Kafka; begin with `core/site`. `changelog`
says which worker may write a site's state. `packing` makes records small enough for their topics.
`ledger` writes decisions down and publishes them. `engine` runs all of this on our own Kafka
adapters, `faust` runs it on Faust.
"""
