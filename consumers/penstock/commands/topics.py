"""`penstock topics create`: the topics that are missing."""

import click

from penstock.commands.common_options import Context, common, run_async, say


@click.group()
def topics() -> None:
    """The topics of the configuration."""


@topics.command()
@click.option("--partitions", type=click.IntRange(1), default=4, show_default=True)
@click.option("--replication", type=click.IntRange(1), default=1, show_default=True)
@click.option("--scenes", "of_scenes", is_flag=True, help="Those of penstock scenes instead.")
@common
def create(context: Context, partitions: int, replication: int, of_scenes: bool) -> None:
    """Create those of the input, output and dead-letter topics that are missing."""
    from penstock.adapters.kafka.topics import TopicShape, create_topics, partition_counts

    cfg = context.resolve().config

    async def work() -> None:
        if of_scenes:
            from penstock.scenes.start import create_scenes_topics

            for topic, outcome in await create_scenes_topics(cfg, partitions, replication):
                say(f"{topic}: {outcome}")
            return
        made = await create_topics(cfg.kafka, cfg.topics, TopicShape(partitions, replication))
        were_there = [topic for topic, outcome in made if outcome != "created"]
        counts = await partition_counts(cfg.kafka, were_there) if were_there else {}
        for topic, outcome in made:
            count = counts.get(topic, partitions)
            others = "" if count == partitions else f", and keeps its {count} partitions"
            say(f"{topic}: {outcome}{others}")

    run_async(work())
