"""The life of a worker's pipeline: start, rebalance, drain, stop; and how its stages are joined.

A lane is one assignment of one partition. Its object passes five tasks; the work between two of
them is done by the event loop, in the task that hands over:

    one task a worker    Consume.run            polls lanes with room
      Lane.receive         Intake.tickets       a ticket for each object, in the lane's order
      Download.offer                            wakes a fetcher
    fetchers, a store    Download._fetch_on     takes the lane's next ticket
      ReadObject.read      Expand               bytes to blocks, on the chain of the ticket
      Microbatch.add                            the block waits in its model's window
    callers, a model     Predict._call_forever  asks the model for a batch of many streams
      Block.answer         Lane.wake
    one task a lane      Publish.lane_forever   Lane.release -> Encode -> Sink.send
      Lane.delivered                            the broker has all of it: the position moves
    one task a worker    Settle.run             commits the positions of all lanes

With exactly once a lane's task is `Takeover.live`: the transaction that has the records commits the
position, and `Settle` does not run. All tasks are in one TaskGroup (life.py); each stage is made
once (wiring.py), fetchers, window and callers once for each model.

Beside the flow: life.py (start, stop), assignments.py (partitions come and go; lanes suspend,
drain, close), stopped_lines.py (`penstock dlq resume`), owed_answers.py (backlog, watchdog).
"""
