"""The figures of the paper on Syno, one call each: ``figure_5(lab)``, …, ``table_2(file)``.

Our own measurements come from a lab's store or from a file of stored results. The numbers that the paper states are
drawn beside them, always marked as the paper's; where we have no measurement (ImageNet, a real Jetson) the figure shows
only those. Points that the paper only draws are left out.
"""

from reproduction.paper.facts import PaperFigure, Series
from reproduction.paper.language import figure_10
from reproduction.paper.layers import figure_9
from reproduction.paper.rates import distance_ablation, table_2
from reproduction.paper.vision import figure_5, figure_6, figure_8

__all__ = [
    "PaperFigure",
    "Series",
    "distance_ablation",
    "figure_5",
    "figure_6",
    "figure_8",
    "figure_9",
    "figure_10",
    "table_2",
]
