"""Every metric of a worker, with its meaning.

Rule: stages count once per object, batch or commit, never per row. Only these files know the
metrics library. The module `worker` has the metrics that every worker has. Metrics of each model,
of a shadow and of regions are made only if there are several models, a shadow or regions. Each
worker, or call of the library, makes and owns one `Telemetry`; nothing here is global.
"""
