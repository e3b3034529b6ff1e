"""Figures 5, 6 and 8: networks, their latency and their accuracy against the baseline (Syno, section 9.2).

The paper measures whole networks, and so do ``reproduce.py`` (:mod:`.whole`) and a search that tunes them. What
other searches have is the sum over the replaced layers: it is named so, and shown only where there is no
latency of the whole network. Such a speedup is greater than the network's, of which the rest stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from reproduction.paper.facts import LabLike, PaperFigure, Series, place_of, reading_of, stated
from reproduction.paper.whole import WholeNetworks, networks_of
from syno_lab.reports.axes import LATENCY
from syno_lab.reports.fronts import front_of
from syno_lab.reports.lab import Reading
from syno_lab.reports.published import published_points
from syno_lab.reports.rows import Source, TrialRow
from syno_lab.store.latencies import is_of_network, short_title

#: The loss of accuracy that the paper allows, in percentage points (section 9.2).
WITHIN = 1.0
_THEIRS = (
    "Purple, hatched or crossed: the paper's values, on its Jetson Orin Nano; a range that it states is a line between "
    "caps or a hatched box."
)
_MOST = 12
_POINTS = "accuracy against the baseline [percentage points]"


def figure_5(source: LabLike | None = None, *, within: float = WITHIN) -> PaperFigure:
    """The fastest operator of each network that is at most ``within`` points less accurate, over the TVM baseline.

    Latencies are those of whole networks in a file and where a search has them, else sums over the replaced layers,
    and named so.

    Args:
        source: a lab, a store, or the path of one; its searches with a baseline are shown, by target. The file
            of whole networks that ``reproduce.py`` writes (``.json``). None: only the paper's values.
        within: the most accuracy that an operator may lose, in percentage points.

    Raises:
        StoreError: the store cannot be read.
        FormatError: the file has no networks.
    """
    series: list[Series] = []
    reading, whole = _read(source)
    if whole is not None:
        series += whole.best(within)
    for target in reading.targets if reading else ():
        values = []
        for one, baseline in _with_baseline(reading):
            if target not in _targets(one, baseline):
                continue
            speedups = [
                baseline.latencies[target] / row.latencies[target]
                for row in _operators(reading, one)
                if target in row.latencies and target in baseline.latencies and _loss(row, baseline) <= within
            ]
            if speedups:
                values.append((_name(one), max(speedups)))
        if values:
            series.append(Series(f"here, {short_title(target)}", tuple(values)))
    found = stated(published_points("figure_5"), "speedup")
    paper = Series("the paper, whole networks, CIFAR-100", tuple((label, value) for label, value, _ in found), True)
    points = f"{within:g} percentage point{'' if within == 1 else 's'}"
    about = f"Speedup of the fastest operator within {points} of the baseline's accuracy."
    note = f"{about} {_THEIRS}{_measured(reading, whole, series)}"
    return PaperFigure("figure_5", "Speedup over the tuned baseline", "bars", "", "speedup", (*series, paper), note)


def figure_6(source: LabLike | None = None) -> PaperFigure:
    """The Pareto front of accuracy against inference time of each network, both against its baseline.

    Args:
        source: as in :func:`figure_5`.

    Raises:
        StoreError: the store cannot be read.
        FormatError: the file has no networks.
    """
    series: list[Series] = []
    reading, whole = _read(source)
    for one, baseline in _with_baseline(reading):
        rows = _operators(reading, one)
        for target in _targets(one, baseline):
            front = front_of([baseline, *rows], (LATENCY + target, "accuracy"), baselines={one.key: baseline})
            found = [front.points[place].values for place in front.front]
            line = tuple((x, y) for x, y, *_ in found)
            if any(not point.is_baseline for point in front.points):
                series.append(Series(f"here, {short_title(target)}, {_name(one)}", line, is_line=True))
    if series:
        series.append(Series("here, the baseline", ((1.0, 0.0),)))
    if whole is not None:
        series += whole.front()
    theirs = []
    for one_stated in published_points("figure_6"):
        times, points = one_stated.along(f"{LATENCY}x"), one_stated.accuracy_points
        if times and points:
            middle = (sum(times) / 2, sum(points) / 2)
            theirs.append(
                Series(
                    f"the paper, whole networks, ImageNet: {one_stated.label}, a range",
                    (middle,),
                    True,
                    (points,),
                    spans=(times,),
                    is_range=True,
                )
            )
    note = (
        "Latency over the baseline's, accuracy minus the baseline's. The paper's ranges: a loss of 1 to 2 points at a "
        f"speedup of 1.10 to 4.73, for most of its operators. {_THEIRS}{_measured(reading, whole, series)}"
    )
    return PaperFigure(
        "figure_6",
        "Accuracy against inference time",
        "points",
        "latency over the baseline's",
        _POINTS,
        (*series, *theirs),
        note,
    )


def figure_8(
    source: LabLike | None = None, *, of: str | None = None, labels: Sequence[str] | None = None
) -> PaperFigure:
    """Operators of one network beside each other: speedup, and accuracy lost, against the baseline.

    Args:
        source: as in :func:`figure_5`.
        of: the name or key of the search; None: the last one that has a baseline.
        labels: labels of the operators to show; None: the twelve most accurate that have either value.

    Raises:
        StoreError: the store cannot be read, or has no such search.
        FormatError: the file has no networks.
    """
    series: list[Series] = []
    reading, whole = _read(source)
    if whole is not None:
        series += whole.bars(_POINTS)
    known = _with_baseline(reading)
    if reading is not None and of is not None:
        reading.of(of)
        known = [pair for pair in known if of in (pair[0].key, pair[0].name)]
    for one, baseline in known[-1:]:
        rows = [row for row in _operators(reading, one) if labels is None or row.label in labels]
        rows.sort(key=lambda row: -(row.accuracy or 0.0))
        chosen = rows[:_MOST] if labels is None else rows
        for target in _targets(one, baseline):
            pairs = tuple(
                (row.label, baseline.latencies[target] / row.latencies[target])
                for row in chosen
                if target in row.latencies and target in baseline.latencies
            )
            if pairs:
                series.append(Series(f"here, speedup, {short_title(target)}", pairs))
        losses = tuple((row.label, -_loss(row, baseline)) for row in chosen if _loss(row, baseline) < float("inf"))
        if losses:
            series.append(Series("here, accuracy", losses, unit=_POINTS))
    statements = published_points("figure_8")
    speedups = tuple((label.split(",")[0], value) for label, value, _ in stated(statements, "speedup"))
    points = stated(statements, "accuracy_points")
    paper = (
        Series("the paper, speedup", speedups, True),
        Series(
            "the paper, accuracy: less than 1 point lost",
            tuple((label.split(",")[0], middle) for label, middle, _ in points),
            True,
            tuple(span for *_, span in points),
            is_range=True,
            unit=_POINTS,
        ),
    )
    words = " ".join(f"{one.quote[0][0].upper()}{one.quote[0][1:]}." for one in statements if one.speedup is None)
    note = f"Against the baseline. The paper besides: {words} {_THEIRS}{_measured(reading, whole, series)}".replace(
        "..", "."
    )
    title = "Operator 1 and other optimizations"
    return PaperFigure("figure_8", title, "bars", "", "speedup", (*series, *paper), note)


def _read(source: LabLike | None) -> tuple[Reading | None, WholeNetworks | None]:
    """A lab, or a file of whole networks."""
    if source is None:
        return None, None
    place = place_of(source)
    return (None, networks_of(place)) if place.suffix == ".json" else (reading_of(source), None)


def _with_baseline(reading: Reading | None) -> list[tuple[Source, TrialRow]]:
    sources = () if reading is None else reading.sources
    return [(one, one.baseline) for one in sources if one.baseline is not None]


def _targets(source: Source, baseline: TrialRow) -> list[str]:
    """The targets that are shown: those of whole networks, where the source and its baseline have any."""
    found = [target for target in source.targets if target in baseline.latencies]
    return [target for target in found if is_of_network(target)] or found


def _operators(reading: Reading | None, source: Source) -> list[TrialRow]:
    return [] if reading is None else [row for row in reading.of(source.key) if not row.is_baseline]


def _loss(row: TrialRow, baseline: TrialRow) -> float:
    """Percentage points below the baseline; infinite unless both have the accuracy of a finished training."""
    if row.accuracy is None or baseline.accuracy is None or row.state != "finished":
        return float("inf")
    return 100 * (baseline.accuracy - row.accuracy)


def _name(source: Source) -> str:
    training = source.settings.get("training")
    backbone = training.get("backbone") if isinstance(training, dict) else None
    return f"{backbone} ({source.name})" if isinstance(backbone, str) else source.name


def _measured(reading: Reading | None, whole: WholeNetworks | None, series: Sequence[Series]) -> str:
    """What our latencies are, of each search that has some with a baseline; that there are none, otherwise."""
    if not series:
        return " Nothing of it was measured here."
    if whole is not None:
        return f" Measured here: {whole.about}."
    found = [
        f"{one.name} on {target}: {one.measured[target]}"
        for one, baseline in _with_baseline(reading)
        for target in _targets(one, baseline)
    ]
    return f" Measured here: {'; '.join(found)}." if found else ""
