"""Translates `[rows]`, `[limits]` and the request into the options of the formats.

Rule: what the keys of `[rows]` mean together is decided here, and combinations that cannot work are
refused here. Owner: `settings`, for each model; the bench, for an object of its own.
"""

from penstock import config, requests
from penstock.errors import usage
from penstock.formats.base.runs import RowOptions
from penstock.formats.csv.dialect import CsvOptions
from penstock.formats.media.audio import AudioOptions
from penstock.formats.media.decoding import need_media
from penstock.formats.media.video import VideoOptions
from penstock.formats.pictures.image import need_pillow
from penstock.formats.pictures.pixels import PictureOptions, pixel_options
from penstock.formats.registry import check_options
from penstock.formats.text.text_and_bytes import TextOptions


def row_options(cfg: config.Config) -> RowOptions:
    """The options of the formats. Raises `Fatal` for settings that contradict each other."""
    header, missing = cfg.rows.header, cfg.rows.missing
    if cfg.rows.decimal == "," and cfg.rows.delimiter == "comma":
        raise usage(
            'rows.decimal = "," and rows.delimiter = "comma": one sign cannot be both; with a '
            "decimal comma cells are separated by semicolon, tab or pipe"
        )
    form = requests.find(cfg.model.request).takes
    image = pixel_options(
        cfg.rows.image_size,
        cfg.rows.image_layout,
        cfg.rows.image_scale,
        form,
        cfg.limits.row_bytes,
    )
    if image is not None:
        need_pillow("rows.image_size")
    need_media(cfg.rows.format, form)
    options = RowOptions(
        form=form,
        format=cfg.rows.format,
        columns=cfg.rows.columns,
        keep=tuple(cfg.rows.keep or ()),
        time=cfg.rows.time,
        missing=None if missing == "reject" else float(missing),
        member=cfg.rows.member,
        fail_on_bad_row=cfg.rows.on_bad_row == "fail_object",
        row_bytes=cfg.limits.row_bytes,
        max_columns=cfg.limits.columns,
        rows=cfg.limits.rows,
        expansion_ratio=cfg.limits.expansion_ratio,
        expanded_bytes=cfg.limits.expanded_bytes,
        members=cfg.limits.members,
        member_bytes=cfg.limits.member_bytes,
        own=(
            CsvOptions(
                header if isinstance(header, str) else "yes" if header else "no",
                cfg.rows.delimiter,
                cfg.rows.decimal,
                cfg.rows.comment,
            ),
            TextOptions(cfg.rows.text),
            PictureOptions(cfg.limits.pixels, image),
            VideoOptions(cfg.rows.fps),
            AudioOptions(cfg.rows.window_ms, cfg.rows.hop_ms),
        ),
    )
    check_options(options, cfg.model.request)
    return options
