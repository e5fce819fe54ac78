"""What a worker or `penstock scenes` would refuse at its start, before it asks anybody.

Rule: nothing is asked and nothing is written. Owner: `penstock config` and `penstock doctor`.
"""

from consumers import config


def check_whole(resolved: config.Resolved) -> None:
    """Raises `Fatal` for the first."""
    from consumers.adapters.models import open_model
    from consumers.scenes import names
    from consumers.settings import for_worker

    config.check_files(resolved)
    for each in (resolved.config, *resolved.config.with_each_model().values()):
        open_model(each)  # connects when it is first asked
    names.check(resolved.config.scenes)
    for_worker(
        resolved.config,
        None,
        input_partitions=1,
        output_partitions=1,
        dead_letter_partitions=1,
    )
