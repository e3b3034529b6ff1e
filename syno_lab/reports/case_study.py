"""A case study of a search in rungs: a notebook with figures, whose cells can draw the figures again from the lab.

The notebook is data (nbformat 4.5), written without Jupyter. The notebook is in the search's folder and finds the lab
from there. Every number in the notebook comes from the lab.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from syno_lab.errors import StoreError
from syno_lab.inputs import count_of, printable, quoted
from syno_lab.reports.fronts import front_of
from syno_lab.reports.lab import LabReader
from syno_lab.reports.named import find_trial
from syno_lab.reports.pictures import front_picture
from syno_lab.reports.portrait import portrait
from syno_lab.reports.progress import finals_table, funnel_picture, progress_of, read_result
from syno_lab.reports.searched import searched
from syno_lab.reports.text_tables import table_text
from syno_lab.reports.why import read_why
from syno_lab.systems import find_system, read_operator, system_of
from syno_lab.versioned import JSON

FILE_NAME = "case-study.ipynb"
_NAMES = {"0.4": "within 0.4 of the FLOPs", "0.25": "within 0.25 of the FLOPs", "known": "the best known operator"}


class _Options(msgspec.Struct, frozen=True):
    match: tuple[str, ...] = ()


class _Training(msgspec.Struct, frozen=True):
    backbone: str
    data: str
    epochs: int
    batch_size: int
    recipe: str = "short"
    options: _Options = _Options()


class _Settings(msgspec.Struct, frozen=True):
    """The settings of the search that the text of a case study needs."""

    system: str
    minutes: float
    seeds: tuple[int, ...]
    training: _Training


@dataclass(frozen=True)
class Study:
    """A search that has ended: the lab's folder, and the ``result`` that the search wrote."""

    lab: Path
    name: str
    result: Mapping[str, JSON]

    @property
    def finals(self) -> dict[str, int]:
        """The numbers of the operators in the finals, by the category that each operator won."""
        return searched(self.result).numbers

    def front_svg(self) -> str:
        """Draw accuracy on the last rung against FLOPs."""
        with LabReader(self.lab) as reader:
            rows = reader.read().of(f"search:{self.name}")
        rungs = [training.rung for row in rows for training in row.rungs]
        last = "network" if "network" in rungs else next(iter(rungs), "network")
        return _inside(front_picture(front_of(rows, (f"accuracy@{last}", "flops")), title=self.name).decode())

    def funnel_svg(self) -> str:
        """Draw the funnel: the number of operators that reached each stage."""
        progress = progress_of(self.result, self.name)
        if progress is None:
            raise StoreError(f"{quoted(self.name)}: expected a search in rungs, found one without a funnel")
        return funnel_picture(progress)

    def finals_text(self) -> str:
        """Return a table of the baseline, the front of the last rung, and the finals' operators."""
        return table_text(finals_table(self.result))

    def operator_svg(self, number: int) -> str:
        """Draw the operator of a trial from its output to its input."""
        return _inside(str(read_why(self.lab, f"{self.name}#{number}").panes["graph"]["svg"]))

    def portrait(self, number: int) -> dict[str, list[str]]:
        """Return the sentences about an operator by their headings (:func:`.portrait.portrait`)."""
        _, row = find_trial(f"{self.name}#{number}", self.lab)
        operator, result = read_operator(row.operator), searched(self.result)
        sizes = [binding for _, binding in row.places] or [system_of(operator).example_binding(operator)]
        smallest = min(sizes, key=lambda binding: operator.output_sizes(binding)[1])
        return portrait(operator, smallest, result.finals.get(number), result.rivals)


def read_study(lab: str | Path, name: str) -> Study:
    """Read the search ``name`` of the lab in a folder. Raises StoreError where the search has no result yet."""
    result = read_result(Path(lab), name)
    if result is None or "finalists" not in result:
        raise StoreError(f"expected a search {quoted(name)} in rungs that has ended in {lab}, found none")
    return Study(Path(lab), name, result)


def case_study(study: Study) -> dict[str, JSON]:
    """Return the notebook as the JSON of nbformat 4.5. Each code cell has its result as output."""
    result, settings = searched(study.result), msgspec.convert(study.result["settings"], _Settings)
    training, layers = settings.training, settings.training.options.match
    # Show a user's own network without its digest, and a folder by its name only.
    plain = (name.removeprefix("own:").partition("@")[0] for name in (training.backbone, training.data))
    network, data = (printable(name.rpartition("/")[2]) for name in plain)
    systems = " and ".join(find_system(system).title for system in settings.system.split(","))
    epochs = count_of(training.epochs, "epoch")
    cells = [
        _words(
            f"# A case study: {printable(study.name)}",
            f"{systems} were searched for {len(layers) or 'the'} layers of {network} on {data}, for "
            f"{settings.minutes:g} minutes. The network as it is takes {result.baseline.flops or 0:,} FLOPs for one "
            f"example and has {result.baseline.params or 0:,} parameters. A training has {epochs} with batches of "
            f"{training.batch_size} by the recipe {training.recipe}; the finals train on {len(settings.seeds)} seeds.",
            *([f"The layers: {', '.join(f'`{printable(name)}`' for name in layers)}."] if layers else []),
            "Each cell makes its figure from the lab, which the notebook finds two folders above its own.",
        ),
        _code(
            "from IPython.display import SVG\n\nfrom syno_lab.reports.case_study import read_study\n\n"
            f'study = read_study("../..", {study.name!r})'
        ),
        _words(
            "## What was found", f"The verdict of the search: {result.verdict or 'no operator came to the finals'}."
        ),
    ]
    for number in dict.fromkeys(study.finals.values()):
        kinds = [_NAMES.get(kind, printable(kind)) for kind, winner in study.finals.items() if winner == number]
        told = study.portrait(number).items()
        cells += [
            _words(f"## Trial {number}, {' and '.join(kinds)}"),
            _code(f"SVG(study.operator_svg({number}))", svg=study.operator_svg(number)),
            _words(*(line for heading, lines in told for line in (f"### {heading}", " ".join(lines)))),
            _words(f"All figures: [why-{number}.html](why-{number}.html)."),
        ]
        if (study.lab / "searches" / study.name / f"operator-{number}.py").exists():
            cells.append(
                _words(
                    f"`operator-{number}.py` needs torch alone: `patch(net)` puts the operator into the layers of a "
                    "network of the same form."
                )
            )
    cells += [
        _words("## How the search went"),
        _code("print(study.finals_text())", text=study.finals_text()),
        _code("SVG(study.funnel_svg())", svg=study.funnel_svg()),
        _words(
            "The accuracy of each operator on the last rung, on held-out examples, against the FLOPs of the network "
            "with it. These are not the finals: they chose the operators, so the best of them are flattered."
        ),
        _code("SVG(study.front_svg())", svg=study.front_svg()),
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number:02}"
    python = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    metadata = {"kernelspec": python, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def write_case_study(lab: Path, name: str) -> Path:
    """Write the notebook of an ended search into the search's folder. Raises StoreError as :func:`read_study` does."""
    path = lab / "searches" / name / FILE_NAME
    text = msgspec.json.format(msgspec.json.encode(case_study(read_study(lab, name))), indent=1)
    path.write_bytes(text + b"\n")
    return path


def _inside(svg: str) -> str:
    """Return an SVG for use inside a page, without an XML declaration."""
    return svg[svg.index("<svg") :]


def _words(*paragraphs: str) -> dict[str, JSON]:
    return {"cell_type": "markdown", "metadata": {}, "source": _lines("\n\n".join(paragraphs))}


def _code(source: str, *, text: str = "", svg: str = "") -> dict[str, JSON]:
    outputs: list[JSON] = []
    if text:
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(text + "\n")})
    if svg:
        shown = {"image/svg+xml": _lines(svg), "text/plain": ["<IPython.core.display.SVG object>"]}
        outputs.append({"output_type": "execute_result", "execution_count": None, "data": shown, "metadata": {}})
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": outputs, "source": _lines(source)}


def _lines(text: str) -> Sequence[str]:
    return text.splitlines(keepends=True)
