"""Checks that a worker and `penstock scenes` would accept the configuration.

Rule: no service is asked and nothing is written. Owner: `penstock config` and `penstock doctor`.
"""

from penstock import config


def check_whole(resolved: config.Resolved) -> None:
    """Raises `Fatal` for the first value that would be refused."""
    from penstock.adapters.model_servers.choice import open_model
    from penstock.scenes import settings
    from penstock.settings.worker import for_worker

    config.check_files(resolved)
    for each in (resolved.config, *resolved.config.with_each_model().values()):
        open_model(each)  # only made: it connects with its first request
    settings.check(resolved.config.scenes)
    for_worker(
        resolved.config,
        None,
        input_partitions=1,
        output_partitions=1,
        dead_letter_partitions=1,
    )
