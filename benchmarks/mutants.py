"""What ``mutations.py`` tests: copies of a checkout, and changes of random lines of the engine by cosmic-ray."""

from __future__ import annotations

import difflib
import hashlib
import random
import re
import subprocess
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

try:
    from cosmic_ray import ast, mutating, plugins
except ImportError:
    sys.exit("mutations.py: expected cosmic-ray, found none: python -m pip install 'cosmic-ray>=8.7'")

HERE = Path(__file__).resolve().parents[1]
NAMES = [name for name in sorted(plugins.operator_names()) if not plugins.get_operator(name).arguments()]
MAKERS = {name: plugins.get_operator(name)() for name in NAMES}
ANNOTATED = {("tfpdef", ":"), ("annassign", ":"), ("funcdef", "->")}
MESSAGE = re.compile(r"\s*([\w.]+\.)?(say|print|echo|warn|warning)\(")


class Change(NamedTuple):
    """A changed line: the file, the line's number, what cosmic-ray calls the change, and its patch."""

    file: str
    line: int
    kind: str
    patch: str


def git(folder: Path, *words: str, text: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run git there."""
    return subprocess.run(["git", *words], cwd=folder, input=text, capture_output=True, text=True, check=check)


def copied(asked: str, copy: Path) -> str:
    """Clone a commit, or a folder with what is not committed there; a digest of its engine and tests."""
    is_folder = Path(asked).is_dir()
    source = Path(asked).resolve() if is_folder else HERE
    found = git(source, "rev-parse", "--verify", "HEAD" if is_folder else f"{asked}^{{commit}}", check=False)
    if found.returncode:
        sys.exit(f"expected a commit of {HERE} or a folder in git, found {asked}")
    git(HERE, "clone", "--shared", "--no-checkout", str(source), str(copy))
    git(copy, "checkout", found.stdout.strip())
    if is_folder:
        git(copy, f"--work-tree={source}", "add", "--all")
    restore(copy)
    return hashlib.sha256(git(copy, "ls-files", "--stage", "syno_lab", "tests").stdout.encode()).hexdigest()[:16]


def restore(copy: Path) -> None:
    """Undo all changes in a copy."""
    git(copy, "checkout", "--force", "--", ".")
    git(copy, "clean", "-fd")


@cache
def parsed(file: Path) -> tuple[str, list[Any]]:
    """The source and its nodes."""
    text = file.read_text(encoding="utf-8")
    return text, list(ast.ast_nodes(ast.get_ast(text)))


def is_left_alone(node: Any) -> bool:
    """Whether a node is in an annotation, a message, or a block for types or for ``__main__``."""
    if (parent := node.parent) is None:
        return False
    before = getattr(node.get_previous_sibling(), "value", "")
    is_block = node.type == "if_stmt" and re.search("TYPE_CHECKING|__name__", node.children[1].get_code())
    is_message = node.type == "raise_stmt" or (node.type == "atom_expr" and MESSAGE.match(node.get_code()))
    return bool((parent.type, before) in ANNOTATED or is_block or is_message or is_left_alone(parent))


def changed(root: Path, file: Path, line: int, rng: random.Random) -> Change | None:
    """One of the changes that can be made on the line; None where there is none."""
    text, nodes = parsed(file)
    near = [node for node in nodes if node.start_pos[0] <= line <= node.end_pos[0]]
    found: dict[Any, set[str]] = {}
    for name, node in ((name, node) for name in NAMES for node in near):
        for place in MAKERS[name].mutation_positions(node):
            if place[0][0] == line and not is_left_alone(node):
                found.setdefault(place, set()).add(name)
    path = file.relative_to(root).as_posix()
    for place in rng.sample(sorted(found), len(found)):
        for name in rng.sample(sorted(found[place]), len(found[place])):
            every = [one for node in nodes for one in MAKERS[name].mutation_positions(node)]
            number = rng.choice([number for number, one in enumerate(every) if one == place])
            new = mutating.mutate_code(text, MAKERS[name], number)
            with suppress(SyntaxError), warnings.catch_warnings(action="ignore"):
                compile(new, path, "exec")
                old_lines, new_lines = text.splitlines(keepends=True), new.splitlines(keepends=True)
                patch = "".join(difflib.unified_diff(old_lines, new_lines, f"a/{path}", f"b/{path}"))
                return Change(path, line, name.partition("/")[2], patch)
    return None


def drawn(root: Path, count: int, seed: int, packages: Sequence[str] = ("",)) -> list[Change]:
    """A change of each of so many lines; of the lines that can be changed, each is equally likely."""
    rng = random.Random(seed)
    files = [file for package in sorted(packages) for file in sorted((root / "syno_lab" / package).rglob("*.py"))]
    places = [(file, number + 1) for file in files for number in range(len(parsed(file)[0].split("\n")))]
    rng.shuffle(places)
    return list(islice(filter(None, (changed(root, file, line, rng) for file, line in places)), count))
