"""Reads a lab for people: its jobs, trials, fronts and curves, and the numbers of the paper. The lab is not changed.

`lab` reads the store while other processes write it. `rows` has the trials, `axes` and `fronts` compare trials, and
`courses` has the curves of trainings and tunings. `published` has the paper's statements. `tables` and `pictures` write
files for other programs. No module loads torch or TVM.
"""

from syno_lab.reports.axes import Axis, find_axis, list_axes
from syno_lab.reports.courses import Course, read_courses, rung_courses
from syno_lab.reports.fronts import Front, Placed, front_of
from syno_lab.reports.lab import LabReader, Reading
from syno_lab.reports.pictures import FrontFigure, front_picture, front_sketch
from syno_lab.reports.published import Published, published_on, published_points
from syno_lab.reports.rows import Source, TrialRow
from syno_lab.reports.tables import trials_csv, trials_frame, trials_parquet
