"""What a worker counts: every metric, with its meaning.

Rule: stages count once per object, batch or commit and never per row; only these
files know the metrics library. `worker` is what every worker counts. `models`, `shadow` and
`region` are made where there are several models, a shadow or regions, and cost nothing elsewhere.
Owner: the application, which makes one `Telemetry` per process; nothing here is global.
"""
