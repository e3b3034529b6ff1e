"""Copies of checkouts for ``mutations.py``, and changes of random lines of the engine, made by cosmic-ray."""

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
    """A change of one line: the file, the line's number, cosmic-ray's name of the change, and the patch."""

    file: str
    line: int
    kind: str
    patch: str


def git(folder: Path, *words: str, text: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run git in a folder."""
    return subprocess.run(["git", *words], cwd=folder, input=text, capture_output=True, text=True, check=check)


def clone(checkout: str, copy: Path) -> str:
    """Clone a commit, or a folder with its uncommitted files, and return a digest of its engine and tests."""
    is_folder = Path(checkout).is_dir()
    source = Path(checkout).resolve() if is_folder else HERE
    commit = git(source, "rev-parse", "--verify", "HEAD" if is_folder else f"{checkout}^{{commit}}", check=False)
    if commit.returncode:
        sys.exit(f"expected a commit of {HERE} or a folder in git, found {checkout}")
    git(HERE, "clone", "--shared", "--no-checkout", str(source), str(copy))
    git(copy, "checkout", commit.stdout.strip())
    if is_folder:
        git(copy, f"--work-tree={source}", "add", "--all")
    restore(copy)
    return hashlib.sha256(git(copy, "ls-files", "--stage", "syno_lab", "tests").stdout.encode()).hexdigest()[:16]


def restore(copy: Path) -> None:
    """Undo all changes in a copy."""
    git(copy, "checkout", "--force", "--", ".")
    git(copy, "clean", "-fd")


@cache
def parse(file: Path) -> tuple[str, list[Any]]:
    """Return the source of a file and the nodes of its syntax tree."""
    text = file.read_text(encoding="utf-8")
    return text, list(ast.ast_nodes(ast.get_ast(text)))


def is_excluded(node: Any) -> bool:
    """Whether a node is in an annotation, a message, or a block for types or for ``__main__``."""
    if (parent := node.parent) is None:
        return False
    before = getattr(node.get_previous_sibling(), "value", "")
    is_block = node.type == "if_stmt" and re.search("TYPE_CHECKING|__name__", node.children[1].get_code())
    is_message = node.type == "raise_stmt" or (node.type == "atom_expr" and MESSAGE.match(node.get_code()))
    return bool((parent.type, before) in ANNOTATED or is_block or is_message or is_excluded(parent))


def change_line(root: Path, file: Path, line: int, rng: random.Random) -> Change | None:
    """Return a random change of a line, or None if cosmic-ray has no change for the line."""
    text, nodes = parse(file)
    near = [node for node in nodes if node.start_pos[0] <= line <= node.end_pos[0]]
    kinds: dict[Any, set[str]] = {}  # by the position in the source, the kinds of changes there
    for name, node in ((name, node) for name in NAMES for node in near):
        for position in MAKERS[name].mutation_positions(node):
            if position[0][0] == line and not is_excluded(node):
                kinds.setdefault(position, set()).add(name)
    path = file.relative_to(root).as_posix()
    for position in rng.sample(sorted(kinds), len(kinds)):
        for name in rng.sample(sorted(kinds[position]), len(kinds[position])):
            positions = [other for node in nodes for other in MAKERS[name].mutation_positions(node)]
            number = rng.choice([number for number, other in enumerate(positions) if other == position])
            new = mutating.mutate_code(text, MAKERS[name], number)
            with suppress(SyntaxError), warnings.catch_warnings(action="ignore"):
                compile(new, path, "exec")
                old_lines, new_lines = text.splitlines(keepends=True), new.splitlines(keepends=True)
                patch = "".join(difflib.unified_diff(old_lines, new_lines, f"a/{path}", f"b/{path}"))
                return Change(path, line, name.partition("/")[2], patch)
    return None


def draw(root: Path, count: int, seed: int, packages: Sequence[str] = ("",)) -> list[Change]:
    """Draw ``count`` lines that can be changed, each with the same chance, and return a change of each line."""
    rng = random.Random(seed)
    files = [file for package in sorted(packages) for file in sorted((root / "syno_lab" / package).rglob("*.py"))]
    lines = [(file, number + 1) for file in files for number in range(len(parse(file)[0].split("\n")))]
    rng.shuffle(lines)
    return list(islice(filter(None, (change_line(root, file, line, rng) for file, line in lines)), count))
