"""`penstock scenes`: makes one picture of an instant from the predictions of many streams.

    loop → rekey → loop → arrival → site → ledger → publish
    Kafka          Kafka   decode   decide  changelog  Kafka

The modules of `core` decide, and know neither a clock nor Kafka; read `core/site` first. `engine`
runs all of this on our own Kafka adapters, `faust` on Faust.
"""
