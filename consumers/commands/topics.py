"""`penstock topics`: create them."""

import click

from consumers.commands.shared import Context, common, pass_context, run_async


@click.group()
def topics() -> None:
    """The topics of the configuration."""


@topics.command()
@click.option("--partitions", type=click.IntRange(1), default=4, show_default=True)
@click.option("--replication", type=click.IntRange(1), default=1, show_default=True)
@click.option("--scenes", "of_scenes", is_flag=True, help="Those of penstock scenes instead.")
@common
@pass_context
def create(context: Context, partitions: int, replication: int, of_scenes: bool) -> None:
    """Create the input, output and dead-letter topics where they are missing."""
    from consumers.adapters.kafka_topics import TopicShape, create_topics

    cfg = context.load()

    async def work() -> None:
        if of_scenes:
            from consumers.scenes.main import create_scenes_topics

            for topic, outcome in await create_scenes_topics(cfg, partitions, replication):
                click.echo(f"{topic}: {outcome}")
            return
        for topic, outcome in await create_topics(
            cfg.kafka, cfg.topics, TopicShape(partitions, replication)
        ):
            click.echo(f"{topic}: {outcome}")

    run_async(work())
