"""The stages wait, and move data from one decision to the next.

    consume → download → expand → microbatch → predict → publish → reject → settle
              read_object                                encode
              store_reads

A file in the second line is used by the stage above it. The others stand beside the flow: results
as objects, samples, a shadow model, regions that help each other, records by another key.
"""
