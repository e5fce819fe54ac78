"""`penstock demo`: a worker's whole job, by default on embedded services."""

import click

from penstock.commands.common_options import Context, common, run_async, say

# The demo with scenes may last this long at most. The proof at the end must read every record, but
# the embedded broker keeps only 5 MB of a partition and drops older records.
MOST_SCENES_S = 120


@click.command()
@click.option("--seconds", type=click.FloatRange(0.1), default=20, show_default=True)
@click.option("--streams", type=click.IntRange(1, 1_000), default=12, show_default=True)
@click.option(
    "--rate", type=click.FloatRange(0.01), default=5, show_default=True, help="Hz, of each stream."
)
@click.option("--stack", is_flag=True, help="On the running real services: scripts/stack up.")
@click.option(
    "--scenes", is_flag=True, help="One picture of each site; a camera dies and comes back."
)
@click.option("--frames", is_flag=True, help="Cameras send pictures, to be seen on the page.")
@click.option("--no-browser", is_flag=True, help="Do not open the live page on a desktop.")
@common
def demo(
    context: Context,
    seconds: float,
    streams: int,
    rate: float,
    stack: bool,
    scenes: bool,
    frames: bool,
    no_browser: bool,
) -> None:
    """Show the whole job on this machine: streams, a live view, and at the end a proof that the
    order was kept and nothing was lost.
    """
    if scenes and (stack or seconds > MOST_SCENES_S):
        raise click.UsageError(
            f"--scenes runs on the embedded broker, for {MOST_SCENES_S} seconds at the most"
        )
    if frames and stack:
        raise click.UsageError(
            "--frames asks the embedded model, as that of the stack takes numbers"
        )
    # Said before the imports: they and the services take seconds.
    where = "on the running stack" if stack else "beside a broker, a bucket and a model of its own"
    then = f"{streams} streams for {seconds:g} s" if not scenes else f"scenes for {seconds:g} s"
    say(f"a worker starts {where}, in about 5 s; then {then}, and at the end the proof")
    from penstock.tools.demo.job import JobOptions, run_demo
    from penstock.tools.demo.scenes import run_scenes_demo

    options = JobOptions(seconds, streams, rate, stack, context.path, not no_browser, frames)
    run_async((run_scenes_demo if scenes else run_demo)(options))
