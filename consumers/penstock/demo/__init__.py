"""`penstock demo`: the whole job at home, with a view while it runs and a proof at the end.

Where to look:

    job         the order of things: start, stream, drain, prove; ctrl_c: Ctrl-C in two steps
    services    where the services are: child processes of our own, or the running stack
    worker      the worker, which a person may kill
    streams     what the producers write and announce
    progress    what was sent and answered so far
    onlooker    reads the topics while they grow, for the view and for the judge
    view        the table; proof: the verdict of the judge in a sentence
    scenes      `--scenes`: the demo's sites as pictures
"""
