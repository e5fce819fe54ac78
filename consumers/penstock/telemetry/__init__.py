"""Every metric of a worker, with its meaning.

Rule: stages count once per object, batch or commit, never per row. Only these files know the
metrics library. Metrics of each model, of a shadow and of regions are made only if there are any.
Nothing here is global: each worker or call owns one `Telemetry`.
"""
