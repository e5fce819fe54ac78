"""`penstock demo`: the whole job on one machine, with a view while it runs and a proof at the end.

Where to look:

    job         the order of things: start, stream, drain, prove; Ctrl-C in two steps
    services    where the services are: child processes of the demo, or the running stack; and the
                address of the worker's page
    worker      the worker, which a person may kill
    streams     what the producers write and announce: rows of numbers, or pictures
    progress    what was sent and answered so far
    onlooker    reads the topics while they grow, for the view and for the judge
    view        the live table
    scenes      `--scenes`: frames of a site as one picture
"""
