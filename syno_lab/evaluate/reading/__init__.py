"""What a lab holds, read for people: jobs, trials, fronts, courses, and the paper's own points; nothing is written.

`lab` reads the store while others write it, `rows` are its trials, `axes` and `fronts` what is best among them and how
that grew, `courses` the curves of trainings and tunings, `published` what the paper states, `tables` and `pictures` the
files that leave. Neither torch nor TVM is loaded.
"""

from syno_lab.evaluate.reading.axes import Axis, find_axis, list_axes
from syno_lab.evaluate.reading.courses import Course, read_courses
from syno_lab.evaluate.reading.fronts import Front, Placed, front_of
from syno_lab.evaluate.reading.lab import LabReader, Reading
from syno_lab.evaluate.reading.pictures import front_picture
from syno_lab.evaluate.reading.published import Published, published_on, published_points
from syno_lab.evaluate.reading.rows import Source, TrialRow
from syno_lab.evaluate.reading.sketch import front_sketch
from syno_lab.evaluate.reading.tables import trials_csv, trials_frame, trials_parquet

__all__ = [
    "Axis",
    "Course",
    "Front",
    "LabReader",
    "Placed",
    "Published",
    "Reading",
    "Source",
    "TrialRow",
    "find_axis",
    "front_of",
    "front_picture",
    "front_sketch",
    "list_axes",
    "published_on",
    "published_points",
    "read_courses",
    "trials_csv",
    "trials_frame",
    "trials_parquet",
]
