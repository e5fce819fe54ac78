"""`penstock schema`: the form of the messages."""

import click


@click.command()
@click.argument("name", required=False)
def schema(name: str | None) -> None:
    """Print the JSON Schema NAME, such as "reference" or "prediction". Without NAME, print the
    names of all schemas, one a line.
    """
    from penstock.messages.json_schemas import SUFFIX, documents, text

    known = {file.removesuffix(SUFFIX): document for file, document in documents().items()}
    if name is None:
        click.echo("\n".join(known))
    elif (document := known.get(name.removesuffix(SUFFIX))) is not None:
        click.echo(text(document), nl=False)
    else:
        raise click.ClickException(f"there is no schema {name!r}; there are {', '.join(known)}")
