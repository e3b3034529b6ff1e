"""The figures of the paper on Syno, one call each: ``figure_5(lab)``, …, ``table_2(file)``.

What was measured here comes from a lab's store or from a file of stored results. What the paper states in numbers is
drawn beside it and always marked as the paper's; where nothing was measured here (ImageNet, a real Jetson) it is all
there is. Points that the paper only draws are left out.
"""

from syno_lab.evaluate.paper.facts import PaperFigure, Series
from syno_lab.evaluate.paper.language import figure_10
from syno_lab.evaluate.paper.layers import figure_9
from syno_lab.evaluate.paper.rates import table_2
from syno_lab.evaluate.paper.vision import figure_5, figure_6, figure_8

__all__ = ["PaperFigure", "Series", "figure_5", "figure_6", "figure_8", "figure_9", "figure_10", "table_2"]
