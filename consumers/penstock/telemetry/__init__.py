"""Every metric of a worker, with its meaning.

Rule: stages count once per object, batch or commit, never per row. Only these files know the
metrics library. `worker` has the metrics of every worker; those of each model, of a shadow and of a
region are made only if there are several models, a shadow or regions. Owner: the worker or the
library call, which makes one `Telemetry`; nothing here is global.
"""
