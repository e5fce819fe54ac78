"""`penstock schema`: the form of the messages."""

import click

from penstock.commands.common_options import say, say_json


@click.command()
@click.argument("name", required=False)
def schema(name: str | None) -> None:
    """Print the JSON Schema NAME, such as "reference" or "prediction". Without NAME, print the
    names of all schemas, one a line.
    """
    from penstock.messages.json_schemas import SUFFIX, documents, text

    known = {file.removesuffix(SUFFIX): document for file, document in documents().items()}
    if name is None:
        say("\n".join(known))
    elif (document := known.get(name.removesuffix(SUFFIX))) is not None:
        say_json(text(document).removesuffix(b"\n"))
    else:
        raise click.ClickException(f"there is no schema {name!r}; there are {', '.join(known)}")
