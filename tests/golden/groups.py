"""What is recorded, in seven groups: each yields its entries, a name and the lines of a text, or numbers."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import random
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import inside

from syno_lab.cli import main
from syno_lab.codegen.nest import generic_binding

Entry = tuple[str, list[str] | list[float]]
#: By name the system, and what its sampler is given.
SPECS: dict[str, tuple[str, dict[str, Any]]] = json.loads(Path(__file__).with_name("specs.json").read_text())
SMALL_SIZES = {"N": 1, "C_in": 24, "C_out": 32, "H": 3, "W": 2}  # of NAS-PTE, whose usual ones take a minute
MOVES = (*["step"] * 3, *["any"] * 2, "undo", "go", "load", "way", "suggest", "aim", "say")
BACKBONES = ("resnet20",)  # of those that the digits are large enough for
RUNG_SEARCHES = ({"method": "estimate", "starts_with_known": True, "seed": 2}, {"method": "random"})
SEARCH = (
    "search --backbone resnet20 --data digits --width 4 --blocks 1 --epochs 1 --images 100 --test-images 50 --seeds 0 "
    "--max-primitives 4 --in-process --workers 1 --wants none --to-the-end --json - --folder {} --method {} --trials {}"
)


@dataclass(frozen=True)
class Amount:
    """How much is recorded: specs, and of each the operators; moves of a session; states; operators with costs."""

    specs: tuple[str, ...]
    operators: int
    seeds: int
    states: int
    costs: int
    backbones: tuple[str, ...]
    trials: int
    minutes: tuple[float, ...]


SMALL = Amount(("tiny", "wishing", "readme", "canvas"), 40, 1, 20, 10, BACKBONES, 12, (2,))
LARGE = Amount(tuple(SPECS), 10_000, 2, 200, 500, BACKBONES, 100, (2, 8, 20))


def fingerprints(much: Amount) -> Iterator[Entry]:
    """Operators that samplers draw: fingerprint, steps in words, and a digest of the JSON."""
    for spec in much.specs:
        for seed in range(much.seeds):
            drawn = islice(inside.drawn(*SPECS[spec][:1], seed, SPECS[spec][1]), much.operators)
            yield f"{spec}, seed {seed}", [" | ".join(_told(one)) for one in drawn]


def _told(operator: Any) -> tuple[str, str, str]:
    return operator.fingerprint(), inside.words(operator), digest(operator.to_json())


def sessions(much: Amount) -> Iterator[Entry]:
    """Sessions after random moves: their text, the tree of places; and whether they are read back as they were."""
    for name, begin in inside.sessions().items():
        for seed in range(much.states // 10):
            session = begin()
            for _ in wandering(session, random.Random(seed), 25):
                pass
            again = [inside.session_of(text) for text in (session.to_json(), session.to_word())]
            same = [one.to_json() == session.to_json() and one.rows() == session.rows() for one in again]
            lines = [*session.to_json().splitlines(), *map(plain, session.rows()), f"read back: {same}"]
            yield f"{name}, seed {seed}", lines


def wandering(session: Any, rng: random.Random, moves: int) -> Iterator[str]:
    """Random moves of all kinds; each is named after it was made, or what refused it."""
    for _ in range(moves):
        try:
            move = rng.choice(MOVES)
            if move in ("step", "any"):
                found = session.candidates(session.state)
                offered = [item["index"] for group in session.menu(session.state, found) for item in group["canonical"]]
                session.apply(found[rng.choice(offered if move == "step" and offered else range(len(found)))])
            elif move == "undo":
                session.undo()
            elif move == "go":
                session.go(rng.randrange(len(session.places)))
            elif move == "load" and rng.random() < 0.3:
                session.load(rng.choice(sorted(session.known)))
            elif move == "way":
                session.lay(session.random_steps(session.state, rng, None, should_stop=after(3_000))[:2])
            elif move == "suggest":
                session.take_suggestion()
            elif move == "aim":
                names = re.findall(r'"name": "([^"]+)"', plain(session.explain(session.state).get("aims", [])))
                session.apply(session.aimed(session.state, rng.choice(names))) if names else session.reset()
            else:
                session.comment(f"place {session.place}")
        except (inside.Refused, IndexError) as error:
            move = f"{move}: {error}"
        yield move


def after(questions: int) -> Callable[[], bool]:
    """A limit that no clock decides: it says to stop once it was asked so often."""
    left = iter(range(questions))
    return lambda: next(left, None) is None


def pictures(much: Amount) -> Iterator[Entry]:
    """What a stepper shows of states: picture, sentences and menu; and the pictures of known operators."""
    begun = inside.sessions()
    for name, begin in begun.items():
        session, rng = begin(), random.Random(7)
        for number, move in enumerate(wandering(session, rng, much.states // len(begun))):
            yield f"{name}, state {number}", [move, *_shown(session)]
    for system in inside.all_systems():
        for name, make in system.known.items():
            yield f"{system.title} {name}", [*make().dot().splitlines(), *make().svg().splitlines()]


def _shown(session: Any) -> Iterator[str]:
    state, picture = session.state, session.picture()
    yield from picture.svg.splitlines()
    yield from map(plain, (picture.description, inside.plain(picture.nodes), session.status(), session.strip(state)))
    yield from map(plain, (session.explain(state), session.course(9), session.ticks(state), *session.rows()))
    found = session.candidates(state)
    menu = session.menu(state, found, whole=("SHARE", "fc"))
    for group in menu:
        yield plain({key: value for key, value in group.items() if key not in ("canonical", "pruned")})
        yield from map(plain, (*group["canonical"], *group["pruned"]))
        for item in group["pruned"][:2]:
            with contextlib.suppress(inside.Refused):
                yield plain(session.why(state, found[item["index"]]))
    if len(ticks := [one["id"] for one in session.ticks(state)]) > 1:
        yield plain(session.preview(state, found, ticks[:1], ticks[1:2]))
        yield plain(session.menu(state, found, ticks[0]))


def costs(much: Amount) -> Iterator[Entry]:
    """Costs, their rows, traffic and traits of known and drawn operators at two bindings; of whole networks."""
    for system in inside.all_systems():
        for name, make in system.known.items():
            yield f"{system.title} {name}", [*_costs(system, make()), make().fingerprint(_small(system, make()))]
    for spec in much.specs[1:]:
        kind, fields = SPECS[spec]
        for number, operator in enumerate(islice(inside.drawn(kind, 5, fields), much.costs)):
            yield f"{spec} drawn {number}", list(_costs(inside.system_of(operator), operator))
    for backbone in much.backbones:
        for name in (None, "conv2d", "separable", "involution"):
            operator = None if name is None else inside.known(name)
            found = inside.whole_costs(backbone, operator)
            words = ["backbone", backbone, *(() if name is None else ("--operator", name)), "--json", "-"]
            layers = json.loads(said(*words)[1])["layers"]
            numbers = [[one for one in layer.values() if isinstance(one, int)] for layer in layers]
            yield f"{backbone} with {name}", [plain(found), *map(plain, numbers)]


def _small(system: Any, operator: Any) -> dict[str, int]:
    return SMALL_SIZES if system.title == "NAS-PTE" else system.small_binding(operator)


def _typical(system: Any, operator: Any) -> dict[str, int]:
    if system.title == "pGraphs" and not operator.spec.bindings:
        return generic_binding(operator)
    return system.example_binding(operator)


def _costs(system: Any, operator: Any) -> Iterator[str]:
    for sizes_of in (partial(_typical, system), partial(_small, system)):
        try:
            sizes = sizes_of(operator)
            yield plain([operator.flops(sizes), operator.params(sizes), operator.memory(sizes)])
            yield plain([operator.input_sizes(sizes), operator.output_sizes(sizes), operator.weight_sizes(sizes)])
            yield plain([system.traffic(operator, sizes), dict(system.traits(operator, sizes))])
            yield from map(plain, inside.pane(operator, "cost", sizes)["rows"])
        except inside.Refused:  # sizes that a coefficient of a drawn operator does not divide
            yield "refused"


def searches(much: Amount) -> Iterator[Entry]:
    """What searches ask for with one worker; rewards of real trainings, whose last digits depend on the machine."""
    for method in ("estimate", "mcts", "random", "evolution", "elites", "pareto"):
        with tempfile.TemporaryDirectory() as folder:
            yield f"{method}, known rewards", inside.known_search(Path(folder), method, much.trials, 3)
    for method in ("random", *(("estimate", "mcts") if much is LARGE else ())):
        with tempfile.TemporaryDirectory() as folder:
            asked = SEARCH.format(folder, method, min(12, much.trials // 3))
            found = json.loads(said(*asked.split(), "--seed", "1")[1])["recorded"]
            yield f"{method}, trained", [plain([one["steps"], one["taken"]]) for one in found]
            yield f"{method}, rewards", [one["accuracy"] for one in found]


def in_rungs(much: Amount) -> Iterator[Entry]:
    """The plan, the funnel and what came out of searches in rungs; nothing of it is measured."""
    for minutes in much.minutes:
        for changes in RUNG_SEARCHES if much is LARGE else RUNG_SEARCHES[:1]:
            with tempfile.TemporaryDirectory() as folder:
                found = inside.rung_search(Path(folder), minutes=minutes, **changes)
            found.pop("folder")
            found["time"].pop("search_process_s")
            found = _untimed(found)
            found["verdict"] = re.sub("; (not )?slower: [^;]*", "", found["verdict"])
            lines = [f"{key}: {plain(found[key])}" for key in found if key != "recorded"]
            yield f"{minutes} minutes {plain(changes)}", [*lines, *map(plain, found["recorded"])]


def _untimed(found: Any) -> Any:
    """What came out without the times of networks, which are measured."""
    if isinstance(found, dict):
        return {name: _untimed(value) for name, value in found.items() if name not in ("times", "baseline_times")}
    return [_untimed(one) for one in found] if isinstance(found, list) else found


def words(much: Amount) -> Iterator[Entry]:
    """Help texts, keys of JSON, messages and the form of what is stored: changes of these are in CHANGES.md."""
    for command, _ in inside.every_command():
        yield " ".join((*command, "--help")), [line.rstrip() for line in said(*command, "--help")[1].splitlines()]
    asked = Path(__file__).with_name("asked.txt").read_text().splitlines()
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        Path("broken.json").write_text('{"format": "syno-lab-operator", "version": 9}')
        Path("nonsense.json").write_text("{")
        for line in asked:
            status, out, err = said(*line.split())
            if line.endswith("--json -"):
                yield f"keys of {line}", keys(json.loads(out))
            else:
                told = [one.replace(place, "FOLDER") for one in err.splitlines() if one.startswith("syno-lab: ")]
                yield f"message of {line}", [f"status {status}", *told]
        tables, rows = inside.stored(Path("lab"))
        yield "tables of a store", tables
        yield "JSON in a store", sorted({f"{table}: {line}" for table, row in rows for line in keys(row)})
        files = sorted(Path("lab").rglob("*.json"))
        yield "files of a lab", list(map(str, files))
        for name in sorted({file.name for file in files}):
            read = [json.loads(file.read_text()) for file in files if file.name == name]
            yield f"stored {name}", keys(read)
    for name, begin in inside.sessions().items():
        yield f"file of a session, {name}", keys(json.loads(begin().to_json()))
    for system in inside.all_systems():
        yield (
            f"file of an operator, {system.title}",
            keys([json.loads(one().to_json()) for one in system.known.values()]),
        )


GROUPS = dict(enumerate((fingerprints, sessions, pictures, costs, searches, in_rungs, words), start=1))


def keys(value: Any, at: str = "") -> list[str]:
    """The keys of JSON with the types of what is there, numbers as keys as N; empty lists say nothing."""
    if isinstance(value, dict):
        found = [line for key, one in value.items() for line in keys(one, f"{at}.{re.sub(r'^[0-9.]+$', 'N', key)}")]
    elif isinstance(value, list):
        found = [line for one in value for line in keys(one, f"{at}[]")]
    else:
        found = [f"{at}: {type(value).__name__}"]
    return sorted(set(found))


def plain(value: Any) -> str:
    """Plain data in one line."""
    return json.dumps(value, ensure_ascii=False, default=list)


def digest(text: str) -> str:
    """Sixteen digits that tell texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def said(*arguments: str) -> tuple[int, str, str]:
    """The status of a command and what it prints, on 100 columns without colours."""
    out, err = io.StringIO(), io.StringIO()
    wide = patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"})
    with wide, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(arguments)
    return status, re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()), err.getvalue()
