"""What the goldens need of the insides of the lab: when an inside changes its name, this file alone follows."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from clocked_trainings import InTurn, chosen
from command_line import every_command as every_command
from known_trainings import Known, settings

import syno_lab as sl
from syno_lab import systems
from syno_lab.errors import SynoError
from syno_lab.experiments import Driver, Space
from syno_lab.experiments import in_rungs as rungs
from syno_lab.experiments.watching import Board
from syno_lab.panes import Asked, read_pane
from syno_lab.panes.aligned import trace_all
from syno_lab.sessions.session import session_of as session_of
from syno_lab.sessions.shown import plain as plain
from syno_lab.store import Store
from syno_lab.trial import TrialRequest, costs_of

Refused = SynoError
all_systems = systems.all_systems
system_of, known = systems.system_of, systems.opened
SHAPE = (2, 8, 8, 16)
CHAIN = ("conv", {"features": sl.alpha.Rel(2)}), ("relu", {}), ("average_pool", {"window": 2, "stride": 2})
PLACES = ((16, 16, 8, 8), (16, 32, 4, 4), (32, 32, 4, 4))


def sessions() -> dict[str, Callable[[], Any]]:
    """Beginnings of sessions by their names, of every system that is built by steps."""
    wishing = sl.Spec.parse("[N, C, H]", "[N, C, H]", ["N=1: 0", "C=4: 2", "H=8: 1"], ["k=3: 2"], wants="C>=m, H>=o")
    places = [sl.canvas.Place(*sizes) for sizes in PLACES]
    graph = sl.alpha.Graph.chain(SHAPE, [sl.alpha.operation(name, **options) for name, options in CHAIN])
    return {
        "pgraphs": lambda: session_of(sl.operators.conv2d().spec),
        "pgraphs wishing": lambda: session_of(wishing),
        "canvas": lambda: session_of(sl.canvas.Draft()),
        "canvas budget": lambda: session_of(sl.canvas.Sampler(places, max_flops=0.5, primitives=(2, 7))),
        "alpha": lambda: session_of(sl.alpha.Draft(sl.alpha.Properties.of(graph), SHAPE)),
    }


def drawn(system: str, seed: int, spec: dict[str, Any]) -> Iterator[Any]:
    """Operators that a sampler draws."""
    if system == "pgraphs":
        return iter(sl.Sampler(**spec, seed=seed).samples())
    sampler = sl.canvas.Sampler([sl.canvas.Place(*sizes) for sizes in PLACES], seed=seed, **spec)
    return sampler.samples()


def words(operator: Any) -> str:
    """The steps of an operator in words."""
    (steps,) = trace_all([operator.format], [operator])
    return "; ".join(step.words for step in steps)


def pane(operator: Any, name: str, binding: dict[str, int]) -> Any:
    """The plain data of a pane."""
    return read_pane(Asked(operator, binding=tuple(binding.items())), name)


def whole_costs(backbone: str, operator: Any) -> tuple[int, int]:
    """FLOPs and parameters of a backbone with the operator in it, None for none."""
    text = None if operator is None else operator.to_json()
    return costs_of(TrialRequest(backbone=backbone, operator=text, data="digits"))


def known_search(folder: Path, method: str, trials: int, seed: int) -> list[str]:
    """The operators that a search asks for whose rewards are known: each trial in one line."""
    asked = settings(name=method, method=method, trials=trials, seed=seed)
    with Store.open(folder) as store:
        log = store.search(asked.name, asked.identity)
        Driver(asked, Space(asked), log, Known(), Board(folder / "board")).run()
        return [json.dumps([one.fingerprint, one.flops, one.params, one.reward, one.operator]) for one in log.trials()]


def rung_search(folder: Path, **changes: Any) -> dict[str, Any]:
    """The result of a search in rungs; trainings drive its clock, and each look at an operator takes half a second."""
    asked = chosen(**changes)
    looked = [0.0]
    score = Space.score

    def counted(space: Space, operator: Any) -> Any:
        looked[0] += 0.5
        return score(space, operator)

    with Store.open(folder) as store, patch.object(Space, "score", counted):
        workers = InTurn(asked, store.search(asked.name, asked.identity))
        with patch.object(rungs, "RungDriver", partial(rungs.RungDriver, cpu_clock=lambda: looked[0])):
            return rungs.run_in_rungs(
                asked, store, lambda _: workers, folder=folder, clock=lambda: workers.now, sleep=workers.sleep
            )


def stored(folder: Path) -> tuple[list[str], list[tuple[str, Any]]]:
    """The statements that made the tables of a lab's store, and what its columns of JSON hold, by the tables."""
    with closing(sqlite3.connect(folder / "results.sqlite")) as file:
        made = dict(file.execute("SELECT name, sql FROM sqlite_master WHERE sql NOT NULL ORDER BY name").fetchall())
        tables = [name for name, sql in made.items() if sql.startswith("CREATE TABLE")]
        texts = [(name, text) for name in tables for row in file.execute(f"SELECT * FROM {name}") for text in row]
    found = [(name, json.loads(text)) for name, text in texts if isinstance(text, str) and text[:1] in ("{", "[")]
    return [" ".join(sql.split()) for sql in made.values()], found
