"""`penstock demo`: the whole job at home, with a view while it runs and a proof at the end.

Where to look:

    main        the order of things: start, stream, drain, prove; interrupts: Ctrl-C in two steps
    place       where the services are: a process tree of our own, or the running stack
    children    child processes that never outlive us; worker: the one a person may kill
    streams     what the producers write and announce
    progress    what was sent and answered so far; tail: reads the topics while they grow, for
                the view and for the judge
    view        the table; proof: the verdict of the judge in a sentence
"""
