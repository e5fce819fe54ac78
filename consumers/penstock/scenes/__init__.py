"""`penstock scenes`: makes one picture of an instant from the predictions of many streams.

    loop → rekey → loop → arrival → site → ledger → publish
    Kafka          Kafka   decode   decide  changelog  Kafka

The modules of `core` decide, and know neither a clock nor Kafka; read `core/site` first.
`rekey_or_refuse` gives a prediction its site as the new key, or refuses the prediction. `changelog`
says which worker may write a site's state. `packing` makes records small enough for their topics.
`ledger` writes decisions down and publishes them. `engine` runs all of this on our own Kafka
adapters, `faust` runs it on Faust.
"""
