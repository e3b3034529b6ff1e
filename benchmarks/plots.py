"""What the plots of the benchmarks share: one look, and the same file for the same figures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from common import RESULTS


def start(name: str) -> Any:
    """``matplotlib.pyplot``, set to draw ``benchmarks/results/<name>.svg`` without a screen."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    mpl.rcParams["svg.hashsalt"] = name  # ids by chance would differ in each run
    mpl.rcParams["svg.fonttype"] = "none"
    return plt


def finish(plt: Any, figure: Any, name: str, panels: Iterable[Any], with_legends: Iterable[Any]) -> None:
    """Give panels their grid, and some of them a legend, on a light background; write the file."""
    for axes in panels:
        axes.set_facecolor("white")
        axes.grid(color="#dddddd")
    for axes in with_legends:
        axes.legend(frameon=False, fontsize=9)
    figure.savefig(RESULTS / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
