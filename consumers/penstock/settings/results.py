"""Translates `[output]`: how answers are written, as result objects and as records of many rows.

Rule: a template that could give two results one name is refused at the start.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from glob import has_magic

from penstock import config
from penstock.core.records.output_records import Blocks
from penstock.core.records.result_names import NameScope, ResultNames, parsed
from penstock.encodings import result_formats
from penstock.errors import usage
from penstock.stages.result_objects import ResultTerms


def results_for_call(
    template: str,
    model: str,
    nested: str,
    *,
    is_one_bucket: bool,
    is_one_object: bool,
    by_key: bool = False,
) -> ResultTerms:
    """Results with one record for each object. An object that fails in the middle never has a
    result, because a result may have to prove to a later call that its object is done. `by_key`:
    another process, on another day, must give an object's result the same name. Raises `Fatal` for
    a wrong template.
    """
    scope = NameScope(is_one_bucket=is_one_bucket, is_one_object=is_one_object)
    names = partial(ResultNames, template, model, scope)
    terms = replace(_terms(names, "--output", "objects", nested), only_whole=True)
    passing = parsed(template).fields & {"date", "partition", "offset"}
    if by_key and passing:
        raise usage(
            f"--output: with --shard or --skip-existing a result's name may say only which object "
            f"it is of; {{{min(passing)}}} differs from process to process: use {{bucket}} and "
            "{key}"
        )
    return terms


def results_for_worker(cfg: config.Config) -> ResultTerms | None:
    """How a worker writes results; None: it writes answers only as records. A wrong template raises
    `Fatal` here, at the start, not at the first result.
    """
    output = cfg.output
    if output.objects is None:
        if output.records == "rows":
            return None
        raise usage(
            f'output.records = "{output.records}" needs output.objects: where they are written'
        )
    scope = NameScope(
        is_one_bucket=_is_one_bucket(cfg.objects.allow),
        is_one_input=len(cfg.after_rekey().all_inputs) == 1,
        # All models count, even models that no route names now, because routes change without a
        # restart.
        are_several_models=bool(cfg.with_each_live_model()),
    )
    names = partial(ResultNames, output.objects, cfg.model.name, scope)
    return _terms(names, "output.objects", output.records, cfg.results.nested)


def _is_one_bucket(allow: list[str] | None) -> bool:
    buckets = {glob.partition("/")[0] for glob in allow or ()}
    return len(buckets) == 1 and not any(map(has_magic, buckets))


def blocks(output: config.Output) -> Blocks | None:
    if output.granularity == "row":
        return None
    return Blocks(output.block_rows, output.block_form)


def _terms(make: Callable[[], ResultNames], key: str, records: str, nested: str) -> ResultTerms:
    try:
        names = make()
    except ValueError as error:
        raise usage(f"{key}: {error}") from None
    return ResultTerms(
        names,
        result_formats.find(names.format, nested),
        of_rows=records != "objects",
        of_objects=records != "rows",
    )
