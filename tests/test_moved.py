"""Old paths: each fails with one line that names the new path; ``golden/moved.txt`` has the modules of version 0.1."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from syno_lab.moved import MOVED, Moved, new_place

RENAMED = dict(
    line.split() for line in (Path(__file__).parent / "golden" / "moved.txt").read_text(encoding="utf-8").splitlines()
)
NAMES = {
    "syno_lab.models.derive_spec": "syno_lab.pgraphs.derive.derive_spec",
    "syno_lab.search.SynthesisState": "syno_lab.pgraphs.space.SynthesisState",
    "syno_lab.search.synthesis_space": "syno_lab.pgraphs.space.synthesis_space",
}
#: What each statement of the standard input says when it runs, after the heading of its traceback.
RUN = """
import json, sys
said = {}
for code in json.load(sys.stdin):
    try:
        exec(code, {})
    except Exception as error:
        said[code] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
"""


def run(*codes: str) -> dict[str, str]:
    """The errors of statements, in one process."""
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=json.dumps(codes), capture_output=True, text=True, timeout=240, check=True
    )
    said: dict[str, str] = json.loads(done.stdout)
    return said


def forms(old: str) -> tuple[str, str, str]:
    """Ways to import a module, each using it."""
    package, _, name = old.rpartition(".")
    return f"from {old} import anything", f"from {package} import {name}; {name}.anything", f"import {old}; {old}.any"


def test_every_old_path_names_the_new_one() -> None:
    said = run(*(code for old in RENAMED for code in forms(old)))
    for old, new in RENAMED.items():
        for code in forms(old):
            # The line names the module, the name that is used of it, or the package that it was in.
            named, new_named = re.fullmatch(r"ImportError: ([\w.]+) is now ([\w.]+)", said[code]).groups()
            if named.startswith(old):
                assert new_named == new + named.removeprefix(old), (code, said[code])
            else:
                assert old.startswith(f"{named}."), (code, said[code])
                assert new == new_named + old.removeprefix(named), (code, said[code])


@pytest.mark.parametrize(("old", "new"), NAMES.items())
def test_old_names_of_packages_that_stay(old: str, new: str) -> None:
    package, _, name = old.rpartition(".")
    (line,) = run(f"from {package} import {name}").values()
    assert line == f"ImportError: {old} is now {new}"


def test_new_paths_are_there() -> None:
    for new in RENAMED.values():
        assert find_spec(new) is not None, new
    for new in NAMES.values():
        module, _, name = new.rpartition(".")
        assert hasattr(__import__(module, fromlist=[name]), name), new


@pytest.mark.parametrize("old", ["syno_lab.evaluate.demo", "syno_lab.evaluate.tuning.serve"])
def test_old_modules_that_were_run(old: str) -> None:
    done = subprocess.run([sys.executable, "-m", old], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode != 0
    assert f"{old} is now {RENAMED[old]}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_what_has_no_new_path_names_the_list_of_rooms() -> None:
    for code in ("from syno_lab.evaluate import *", "from syno_lab.evaluate import anything"):
        (line,) = run(code).values()
        assert line.endswith(" is now split into the rooms of docs/architecture.md")


def test_other_modules_fail_as_they_always_do() -> None:
    (line,) = run("import syno_lab.searching").values()
    assert line == "ModuleNotFoundError: No module named 'syno_lab.searching'"
    assert new_place("syno_lab.search") is None
    assert Moved().find_spec("evaluate.data") is None


def test_no_old_path_is_in_use_again() -> None:
    for old, _ in MOVED:
        assert not Path(__file__).parent.parent.joinpath(*old.split(".")).with_suffix(".py").exists(), old
