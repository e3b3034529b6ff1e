"""The walks of docs/first-change.md: their changes fit the source, and their commands show what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from house import ROOT

SECTIONS = (ROOT / "docs" / "first-change.md").read_text(encoding="utf-8").split("\n## ")[1:]
WALKS = {section.splitlines()[0]: section for section in SECTIONS if "```diff" in section}


def blocks(section: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


def run(command: list[str], folder: Path, text: str = "") -> str:
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=folder, env=env, input=text, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_are_four_walks() -> None:
    assert len(WALKS) == 4


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk(walk: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for name in ("syno_lab", "tests", "docs"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    changes, commands, codes = (blocks(WALKS[walk], language) for language in ("diff", "sh", "python"))
    assert [len(changes), len(commands), len(codes)] == [2, 1, 1]
    for change in changes:
        run(["git", "apply"], copy, change)
    for command in commands[0].splitlines():
        program, *arguments = shlex.split(command)
        assert program == ".venv/bin/python"
        run([sys.executable, *arguments], copy)
    assert [run([sys.executable, "-c", code], copy) for code in codes] == blocks(WALKS[walk], "text")
