"""The house rules that a machine can check: directions and weight of imports, pinned versions, a README that runs."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
ENGINE = ROOT / "syno_lab"
MAX_LINES = 600

# A room imports only rooms further up in this list.
ROOMS = ("ir", "synthesis", "search", "codegen", "operators", "models", "evaluate")

# Imports inside functions that go the other way, each with its reason; none is made before it is used.
UPWARD_ON_USE = {
    ("synthesis/sampler.py", "models"): "the example of syno-readme.md hands the sampler a network and has it filled",
}

# Files that may import anything: the public names, and the command line.
DEBIAN_PYTHON = "3.11.2"  # Debian 12's; a package that wants a later 3.11 had pip look for versions without end
FRONT = ("__init__.py", "api.py", "cli.py", "commands")

JUPYTER = {"IPython", "ipywidgets", "anywidget", "ipykernel", "jupyterlab", "notebook", "traitlets", "syno_widgets"}
HEAVY = ("torch", "tvm", "pandas", "IPython", "matplotlib", "plotly", "optuna", "sklearn", "ipywidgets")


def _modules() -> list[Path]:
    return sorted(ENGINE.rglob("*.py"))


def _imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Every module that a file imports, and whether at once rather than inside a function or for the type checker."""
    package = ["syno_lab", *path.relative_to(ENGINE).parent.parts]

    def visit(node: ast.AST, at_once: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for name in child.names:
                    yield name.name, at_once
            elif isinstance(child, ast.ImportFrom):
                base = package[: len(package) - child.level + 1] if child.level else []
                module = ".".join([*base, *([child.module] if child.module else [])])
                yield module, at_once
                for name in child.names:
                    yield f"{module}.{name.name}", at_once
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                yield from ((module, at_once) for part in child.orelse for module, _ in visit(part, at_once))
            else:
                inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from visit(child, at_once and not inside)

    return visit(ast.parse(path.read_text(encoding="utf-8")), True)


def test_imports_are_seen() -> None:
    # The tests below would pass on an empty list.
    seen = set(_imports(ENGINE / "synthesis" / "sampler.py"))
    assert ("syno_lab.ir.spec", True) in seen
    assert ("syno_lab.models.placeholder", False) in seen
    assert ("syno_lab.evaluate.pareto", True) in set(_imports(ENGINE / "evaluate" / "frame.py"))


def test_rooms_import_only_rooms_above_them() -> None:
    found = set()
    for path in _modules():
        place = path.relative_to(ENGINE)
        if place.parts[0] in FRONT or place.parts[0] == "errors.py":
            continue
        assert place.parts[0] in ROOMS, f"{place} is in no room of DESIGN's list"
        for module, at_once in _imports(path):
            parts = module.split(".")
            if parts[0] != "syno_lab" or len(parts) < 2 or parts[1] in ("errors", "__version__"):
                continue
            assert parts[1] in ROOMS, f"{place} imports {module}, which is above no room"
            if ROOMS.index(parts[1]) > ROOMS.index(place.parts[0]):
                assert not at_once, f"{place} imports {module} at once, a room below its own"
                found.add((place.as_posix(), parts[1]))
    assert found == set(UPWARD_ON_USE), "imports on use that go against the direction are listed, each with its reason"


@pytest.mark.parametrize("path", _modules(), ids=lambda path: path.relative_to(ENGINE).as_posix())
def test_engine_knows_no_jupyter(path: Path) -> None:
    # load_ipython_extension forwards to the widgets: the one line that Jupyter itself asks a package for.
    allowed = {"syno_widgets.magics"} if path == ENGINE / "__init__.py" else set()
    for module, _ in _imports(path):
        is_jupyter = module.partition(".")[0] in JUPYTER
        assert not is_jupyter or any(module.startswith(name) for name in allowed), f"{path.name} imports {module}"


@pytest.mark.parametrize(
    "code",
    [
        "from syno_lab.operators import conv2d; conv2d().loops()",
        "from syno_lab.operators import conv2d; conv2d().state.distance; conv2d().state.svg()",
        "import syno_lab as sl; from syno_lab.operators.nas_pte import nas_pte_1; sl.operators.conv2d().loops()",
        "import copy; from syno_lab.operators import conv2d; assert not hasattr(copy.copy(conv2d()), 'no')",
    ],
)
def test_values_have_their_methods_however_they_are_imported(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True)


@pytest.mark.parametrize(
    "code",
    [
        "import syno_lab",
        "import syno_lab.cli",
        "import syno_lab as sl; sl.Spec; sl.Sampler; sl.State; sl.Operator; sl.operators.conv2d()",
        "import syno_lab as sl; sl.operators.conv2d().svg(); sl.operators.conv2d().loops()",
    ],
)
def test_light_imports(code: str) -> None:
    report = f"{code}\nimport sys\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []


@cache
def _tracked() -> tuple[Path, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file())


# Put together here, so that this file does not hold them itself.
FORBIDDEN = [
    "/" + "work" + "/",
    "/" + "opt" + "/",
    "/" + "root" + "/",
    "pypi" + ".org",
    "python" + "hosted",
    "download.pytorch" + ".org",
    "npmjs" + ".org",
    "deb.debian" + ".org",
]


def test_nothing_of_one_machine_in_the_repository() -> None:
    assert len(_tracked()) > 50
    for path in _tracked():
        text = path.read_bytes().decode("utf-8", "replace")
        for word in FORBIDDEN:
            assert word not in text, f"{path.relative_to(ROOT)} holds {word}"


def test_files_are_of_readable_length() -> None:
    files = [path for path in _tracked() if path.suffix in (".py", ".js")]
    long = {path.name: lines for path in files if (lines := len(path.read_text().splitlines())) > MAX_LINES}
    assert not long, f"one subject a file, at most {MAX_LINES} lines"


# -- pinned versions ---------------------------------------------------------------------------------------------------


def _pins(path: Path) -> dict[str, Version]:
    pins = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            (specifier,) = requirement.specifier
            assert specifier.operator == "==", line
            name = canonicalize_name(requirement.name)
            assert name not in pins, f"{name} is pinned twice"
            pins[name] = Version(specifier.version)
    return pins


def test_constraints_pin_everything_that_is_installed() -> None:
    pins = _pins(ROOT / "constraints.txt")
    waiting, seen = [Requirement("syno-lab[dev,lecture]"), Requirement("hatchling"), Requirement("editables")], set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name != "syno-lab":
            assert name in pins, f"constraints.txt lacks {name}"
            assert wanted.specifier.contains(pins[name], prereleases=True), f"{wanted} is pinned to {pins[name]}"
        if (name, *sorted(wanted.extras)) in seen:
            continue
        seen.add((name, *sorted(wanted.extras)))
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # what is installed only while building
        python = metadata.metadata(name)["Requires-Python"] or ""
        assert SpecifierSet(python).contains(DEBIAN_PYTHON), f"{name} {pins.get(name)} wants Python {python}"
        for text in requirements:
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras)):
                waiting.append(requirement)
    assert len(seen) > 100
    assert pins["torch"].local is None, "a suffix such as +cpu would ask for one build of torch"


def test_binder_installs_what_is_pinned() -> None:
    lines = (ROOT / "binder" / "requirements.txt").read_text().splitlines()
    assert "-c ../constraints.txt" in lines
    assert f"torch=={_pins(ROOT / 'constraints.txt')['torch']}" in lines


def test_binder_s_check_tells_what_is_not_pinned() -> None:
    check = runpy.run_path(str(ROOT / "binder" / "check.py"))
    constraints = (ROOT / "constraints.txt").read_text()
    torch = _pins(ROOT / "constraints.txt")["torch"]
    assert list(check["not_pinned"](f"torch=={torch}+cpu\npip==1\n", constraints)) == []
    assert list(check["not_pinned"]("Some.Package==3\ntorch==1.0\n", constraints)) == [
        "some-package 3 is installed, and constraints.txt says nothing",
        f"torch 1.0 is installed, and constraints.txt says {torch}",
    ]


# -- the README --------------------------------------------------------------------------------------------------------


def _readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_examples_run(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", _readme(), re.DOTALL)
    assert all(len([line for line in example.splitlines() if line.strip()]) <= 12 for example in examples)
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(examples)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "torch.Size([1, 64, 32, 32])" in done.stdout
    assert (tmp_path / "operator.svg").read_text(encoding="utf-8").startswith("<svg")
    assert (tmp_path / "operator.onnx").is_file()


def test_readme_names_real_commands_and_files() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", _readme(), re.MULTILINE))
    assert {"demo", "test", "lab"} <= named <= set(targets)
    from syno_lab.cli import app

    commands = {entry.name for entry in (*app.registered_commands, *app.registered_groups)}
    assert set(re.findall(r"`syno-lab ([a-z]+)", _readme())) == commands
    for link in re.findall(r"\]\(([^)#]+)\)", _readme()):
        assert "://" in link or (ROOT / link).exists(), f"README.md points to {link}, which is not there"


def test_readme_picture_is_the_program_s_own() -> None:
    from syno_lab import operators
    from syno_lab.codegen.drawing import svg

    drawn = (ROOT / "docs" / "conv2d.svg").read_text(encoding="utf-8")
    assert drawn.rstrip("\n") == svg(operators.conv2d()).rstrip("\n"), "draw it anew: `make picture`"
