"""Sentences of the engine for a fresh reader: ``python tests/words.py [COMMIT] [COUNT]`` draws them by a commit's hash.

They come from docstrings, comments and the messages of errors. A reader who wrote none of them marks those that need a
second reading; CONTRIBUTING.md says how many of 40 may.
"""

from __future__ import annotations

import ast
import io
import random
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from house import ROOT, modules

COUNT = 40
#: What no person reads as a sentence: words for tools, and sections' headings.
_FOR_TOOLS = re.compile(r"#\s*(noqa|type:|fmt:|ruff:|pragma|!)|^\s*(>>>|\.\.\s|\w+:$|-{3,})")
_ENDS = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'*:])")
_FEWEST_WORDS = 4


class Sentence(NamedTuple):
    """One sentence and where it stands."""

    file: str
    line: int
    text: str


def sentences(path: Path) -> Iterator[Sentence]:
    """The sentences of a file, in order of kind: docstrings, messages, comments."""
    source = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix()
    for line, text in (*_docstrings(ast.parse(source)), *_messages(ast.parse(source)), *_comments(source)):
        for one in _ENDS.split(" ".join(text.split())):
            if len(one.split()) >= _FEWEST_WORDS:
                yield Sentence(name, line, one)


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Paragraphs and the entries of sections, each on its own."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        text = ast.get_docstring(node)
        if text is None:
            continue
        for part in re.split(r"\n\s*\n|\n(?= {4}\S)|\n(?=\w+:\n)", text):
            kept = [line for line in part.splitlines() if not _FOR_TOOLS.search(line)]
            yield node.body[0].lineno, " ".join(kept)


def _messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What errors say, with ``{…}`` for values."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for given in node.exc.args:
                if isinstance(given, ast.JoinedStr | ast.Constant):
                    yield node.lineno, "".join(_texts(given))


def _texts(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.JoinedStr):
        for part in node.values:
            yield from _texts(part)
    else:
        yield str(node.value) if isinstance(node, ast.Constant) else "{…}"


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Comments; those of lines that follow one another are one text."""
    begun, last, text = 0, -1, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or _FOR_TOOLS.search(token.string):
            continue
        said = token.string.strip("#:- ")
        if token.start[0] == last + 1:
            text = f"{text} {said}"
        else:
            if text:
                yield begun, text
            begun, text = token.start[0], said
        last = token.start[0]
    if text:
        yield begun, text


def drawn(commit: str, count: int = COUNT) -> list[Sentence]:
    """So many sentences of the files as they are, drawn by the hash of a commit."""
    found = [one for path in modules() for one in sentences(path)]
    return random.Random(commit).sample(found, count)


def main(arguments: list[str]) -> None:
    """Print the sentences, numbered, and where they stand."""
    asked = arguments[0] if arguments else "HEAD"
    done = subprocess.run(["git", "rev-parse", asked], cwd=ROOT, capture_output=True, text=True, check=True)
    commit = done.stdout.strip()
    print(f"drawn by {commit}")
    for number, one in enumerate(drawn(commit, int(arguments[1]) if arguments[1:] else COUNT), start=1):
        print(f"{number:3}. {one.text}\n     {one.file}:{one.line}")


if __name__ == "__main__":
    main(sys.argv[1:])
