"""The page ``docs/gallery.md`` and its pictures: operators that can be built: ``make picture``."""

from __future__ import annotations

from pathlib import Path

from syno_lab.pgraphs.system import PGRAPHS

HERE = Path(__file__).parent
#: In the order of the page: first what everybody knows, then what was found.
SHOWN = (
    *("matmul", "conv1x1", "conv2d", "depthwise", "grouped", "separable", "shift_conv", "sum_pool", "pixel_shuffle"),
    *("stacked_grouped_convolution", "operator_1", "operator_2"),
)
HEAD = """# Gallery

Operators of the same eight primitives, from those that everybody knows to those of the paper. Read each picture
from the bottom to the top: from the coordinates of the output to those of the input. To see all about one, run
`syno-lab show conv2d`, or `OperatorView(sl.operators.conv2d())` in a notebook.
`docs/gallery.py` makes this page.
"""


def page() -> str:
    """The whole page; the pictures are written beside it."""
    parts = [HEAD]
    for name in SHOWN:
        make = PGRAPHS.known[name]
        operator = make()
        (HERE / "gallery").mkdir(exist_ok=True)
        (HERE / "gallery" / f"{name}.svg").write_text(operator.svg(), encoding="utf-8")
        words = (make.__doc__ or "").partition("\n\n")[0].replace("\n    ", " ")
        parts.append(f"## {name}\n\n{words}\n\n![The pGraph of {name}](gallery/{name}.svg)\n")
    return "\n".join(parts)


if __name__ == "__main__":
    (HERE / "gallery.md").write_text(page(), encoding="utf-8")
