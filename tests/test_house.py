"""The house rules that a machine can check: directions and weight of imports, pinned versions, a README that runs."""

from __future__ import annotations

import ast
import json
import re
import runpy
import subprocess
import sys
from functools import cache
from html import unescape
from importlib import metadata
from pathlib import Path

import pytest
from house import ENGINE, FRONT, ROOMS, ROOT, SHARED, arrows, imports, lines, modules, open_types
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from references import full_name, references
from references import modules as documented_modules

WIDGETS = ROOT / "widgets"
MAX_LINES = 600

#: The rooms that are pGraphs' own, but for what knows TVM and no operator. Their own commands are in commands/pgraphs.
PGRAPHS = ("ir", "synthesis", "codegen", "operators", "pgraphs")
OWN_COMMANDS = "syno_lab/commands/pgraphs/"
OF_NO_OPERATOR = {"codegen": ("target_names", "tvm_device", "tvm_trace")}

#: Who reaches for pGraphs' insides all the same, and why; everything else knows operators by `syno_lab.protocol`.
REACHES = {
    "syno_lab/api.py": "gives the public names",
    "syno_lab/panes/forms.py": "figures for papers: one function draws the operators of all systems",
    "syno_lab/tuning/network.py": "whole networks with pGraphs in them are what codegen exports to TVM",
    "syno_lab/commands/backbone.py": "shows the spec of pGraphs that a backbone gives",
    "syno_lab/commands/show.py": "prints the forms that pGraphs alone have",
    "syno_lab/trial/own.py": "primitives of the user's own, which are of pGraphs, go to other processes with a trial",
}

#: The largest share of the engine's lines that one room may have, and the most files that may import each other in a
#: circle, imports on use and for types alone counted too.
LARGEST_ROOM = 1 / 6
LONGEST_CIRCLE = 4

DEBIAN_PYTHON = "3.11.2"  # Debian 12's; a package that wants a later 3.11 had pip look for versions without end

JUPYTER = {"IPython", "ipywidgets", "anywidget", "ipykernel", "jupyterlab", "notebook", "traitlets", "syno_widgets"}
HEAVY = ("torch", "tvm", "pandas", "IPython", "matplotlib", "plotly", "optuna", "sklearn", "ipywidgets")


def test_imports_are_seen() -> None:
    # The tests below would pass on an empty list.
    seen = set(imports(ENGINE / "synthesis" / "sampler.py"))
    assert ("syno_lab.ir.spec", True) in seen
    assert ("syno_lab.synthesis.record", False) in set(imports(ENGINE / "commands" / "pgraphs" / "sample.py"))
    assert ("syno_lab.store.pareto", True) in set(imports(ENGINE / "reports" / "axes.py"))
    assert "syno_lab.jobs.lab" in arrows()["syno_lab.jobs.handle"], "imports for types"


def test_rooms_import_only_rooms_above_them() -> None:
    for path in modules():
        place = path.relative_to(ENGINE)
        if place.parts[0] in FRONT:
            continue
        if place.stem in SHARED and len(place.parts) == 1:
            foreign = [module for module, _ in imports(path) if module.startswith("syno_lab.")]
            assert all(module.split(".")[1] in SHARED for module in foreign), f"{place} imports {foreign}"
            continue
        assert place.parts[0] in ROOMS, f"{place} is in no room of the list above"
        for module, _ in imports(path, types=True):
            parts = module.split(".")
            if parts[0] != "syno_lab" or len(parts) < 2 or parts[1] in SHARED:
                continue
            assert parts[1] in ROOMS, f"{place} imports {module}, which is in no room"
            assert ROOMS.index(parts[1]) <= ROOMS.index(place.parts[0]), f"{place} imports {module}, a later room"


def test_only_some_files_reach_for_the_insides_of_pgraphs() -> None:
    def inside(path: Path) -> set[str]:
        found = {module for module, _ in imports(path, types=True)}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                found |= {str(name.value) for name in node.args if isinstance(name, ast.Constant)}
        rooms = {module: module.split(".")[1:3] for module in found if module.startswith("syno_lab.")}
        return {name for name, (room, *file) in rooms.items() if room in PGRAPHS and not known(room, *file)}

    def known(room: str, file: str = "") -> bool:
        return file in OF_NO_OPERATOR.get(room, ())

    for room, names in OF_NO_OPERATOR.items():
        for name in names:
            assert not inside(ENGINE / room / f"{name}.py"), f"{room}/{name}.py knows pGraphs"
    reaching = set()
    for path in (*modules(), *sorted(WIDGETS.rglob("*.py"))):
        place = path.relative_to(ROOT)
        is_own = place.parts[1] in PGRAPHS or place.as_posix().startswith(OWN_COMMANDS)
        if not is_own and (found := inside(path)):
            assert place.as_posix() in REACHES, f"{place} imports {', '.join(sorted(found))}"
            reaching.add(place.as_posix())
    assert reaching == set(REACHES), "files that need no reason any more"


#: Of each system the rooms and commands that are its own; everything else knows systems by `syno_lab.protocol`, and
#: what only some can do by their type.
OF_SYSTEMS = {
    "pgraphs": (*PGRAPHS, "commands/pgraphs"),
    "canvas": ("canvas", "commands/canvas"),
    "alpha": ("alpha", "commands/alpha"),
    "nas_pte": ("nas_pte",),
}
SYSTEM_NAME = re.compile(r"syno-lab-(operator|canvas|alpha|nas-pte)|pgraphs|canvas|alphanas|alpha|αnas|nas.pte", re.I)
#: Who names a system all the same, and why.
NAMES = {
    "__init__.py": "gives the public names",
    "systems.py": "is the registry",
    "tasks.py": "has the default of the command as its own",
    "commands/backbone.py": "shows the spec of pGraphs that a backbone gives",
    "commands/options.py": "Canvas is the name of a rule for early termination here",
    "commands/search.py": "Canvas is the name of a rule for early termination here",
    "commands/search_options.py": "Canvas is the name of a rule for early termination here",
    "trial/stopping.py": "Canvas is the name of a rule for early termination here",
    "commands/pgraphs/specs.py": "the command `sample` draws operators of two systems",
    "experiments/demo.py": "pgraphs is the name of a folder of its own here",
}


def test_nothing_knows_a_system_by_its_name_but_the_system() -> None:
    """Neither by an import, for types alone too, nor by a text that is its name, its title or its format."""
    naming = set()
    for path in modules():
        place = path.relative_to(ENGINE).as_posix()
        own = {name for name, rooms in OF_SYSTEMS.items() if place.startswith(tuple(f"{room}/" for room in rooms))}
        found = {module.split(".")[1] for module, _ in imports(path, types=True) if module.startswith("syno_lab.")}
        every = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        texts = {node.value for node in every if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        if found & (OF_SYSTEMS.keys() - own) or (not own and any(map(SYSTEM_NAME.fullmatch, texts))):
            naming.add(place)
    assert naming == NAMES.keys(), f"not {sorted(naming ^ NAMES.keys())}"


def _circles() -> list[set[str]]:
    """Modules that import each other in a circle (Tarjan's strongly connected components), the longest first."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for other in sorted(arrows()[name]):
            if other not in order:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], order[other])
        if lowest[name] == order[name]:
            place = stack.index(name)
            circle = set(stack[place:])
            del stack[place:]
            if len(circle) > 1:
                found.append(circle)

    for name in sorted(arrows()):
        if name not in order:
            visit(name)
    return sorted(found, key=len, reverse=True)


def test_circles_of_imports_are_short() -> None:
    found = _circles()
    assert found, "a value and its file format import each other: none is seen"
    assert len(found[0]) <= LONGEST_CIRCLE, f"import each other in a circle: {', '.join(sorted(found[0]))}"


def test_no_room_is_too_large() -> None:
    lines = dict.fromkeys((*ROOMS, "commands"), 0)
    total = 0
    for path in modules():
        number = len(path.read_text(encoding="utf-8").splitlines())
        total += number
        if path.relative_to(ENGINE).parts[0] in lines:
            lines[path.relative_to(ENGINE).parts[0]] += number
    largest = max(lines, key=lambda room: lines[room])
    assert lines[largest] <= LARGEST_ROOM * total, f"{largest} has {lines[largest]} of {total} lines"


def test_the_engine_keeps_to_its_budget() -> None:
    """What CONTRIBUTING.md states; it may be raised only with a sentence there of why."""
    page = " ".join(_read("CONTRIBUTING.md").split())
    stated = re.search(
        r"at most ([\d,]+) lines of Python, ([\d,]+) of them code, and at least (\d+) % docstrings", page
    )
    open_to = re.search(r"at most ([\d,]+) signatures .* `object`, and ([\d,]+) have one of these alone", page)
    assert stated
    assert open_to
    most, most_code, least, most_mappings, most_alone = (
        int(number.replace(",", "")) for number in (*stated.groups(), *open_to.groups())
    )
    total, code, words = (sum(numbers) for numbers in zip(*map(lines, modules()), strict=True))
    assert total <= most, f"{total} lines"
    assert code <= most_code, f"{code} lines of code"
    assert words >= total * least / 100, f"{words} lines of docstrings and comments of {total}"
    mappings, alone = open_types()
    assert mappings <= most_mappings, f"{mappings} signatures and fields with mappings to Any or object"
    assert alone <= most_alone, f"{alone} signatures and fields with Any or object alone"


def test_the_architecture_lists_the_rooms_in_their_order() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert re.findall(r"^### `(\w+)`$", page, re.MULTILINE) == [*ROOMS, "commands", "widgets"]
    shared = page.partition("## The packages")[2].partition("###")[0]
    assert set(SHARED) <= set(re.findall(r"`(\w+)`", shared))


def test_the_architecture_names_real_files() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = [name for name in re.findall(r"`([\w/]+\.\w+)`", page) if not re.search(r"\b(NAME|FAMILY)\b", name)]
    assert len(named) > 10
    for name in named:
        assert (ROOT / name).is_file() or (ENGINE / name).is_file(), f"docs/architecture.md names {name}"


def test_the_drawing_of_the_rooms_is_that_of_today_s_imports() -> None:
    drawn = unescape((ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8"))
    arrows = runpy.run_path(str(ROOT / "docs" / "architecture.py"))["arrows"]()
    assert set(re.findall(r'<g id="(\w+)" class="node', drawn)) == {*ROOMS, "commands", "widgets"}
    found = re.findall(r'<g id="(\w+)--(\w+)" class="edge (\w+)"', drawn)
    assert {(before, after): name for before, after, name in found} == arrows, "draw it anew: `make picture`"


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.relative_to(ENGINE).as_posix())
def test_engine_knows_no_jupyter(path: Path) -> None:
    # load_ipython_extension forwards to the widgets: the one line that Jupyter itself asks a package for.
    allowed = {"syno_widgets.magics"} if path == ENGINE / "__init__.py" else set()
    for module, _ in imports(path):
        is_jupyter = module.partition(".")[0] in JUPYTER
        assert not is_jupyter or any(module.startswith(name) for name in allowed), f"{path.name} imports {module}"


@pytest.mark.parametrize(
    "code",
    [
        "from syno_lab.operators import conv2d; conv2d().loops()",
        "from syno_lab.operators import conv2d; conv2d().state.distance; conv2d().state.svg()",
        "import syno_lab as sl; from syno_lab.nas_pte.operator import nas_pte_1; sl.operators.conv2d().loops()",
        "import copy; from syno_lab.operators import conv2d; assert not hasattr(copy.copy(conv2d()), 'no')",
    ],
)
def test_values_have_their_methods_however_they_are_imported(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], timeout=240, check=True)


@pytest.mark.parametrize(
    "code",
    [
        "import syno_lab",
        "import syno_lab.cli",
        "import syno_lab as sl; sl.Spec; sl.Sampler; sl.State; sl.Operator; sl.operators.conv2d()",
        "import syno_lab as sl; sl.operators.conv2d().svg(); sl.operators.conv2d().loops()",
        "import syno_lab as sl; sl.alpha.Graph.chain((2, 4), [sl.alpha.operation('relu')]).svg()",
    ],
)
def test_light_imports(code: str) -> None:
    report = f"{code}\nimport sys\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, timeout=240, check=True)
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
        python = metadata.metadata(name).get("Requires-Python") or ""
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


# -- the README and the manual -----------------------------------------------------------------------------------------

#: Every page that is read by people, and those with Python, with what it must print and write.
MANUAL = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md", "notebooks/README.md")
EXAMPLES = {
    "README.md": (("torch.Size([1, 64, 32, 32])",), ("operator.svg",)),
    "docs/operator-forms.md": (("m many-to-one", "elements of X"), ("operator.onnx", "operator.pt")),
    "docs/own-primitive.md": (("The dimension is read from its end.", "H - 1 - "), ()),
    "docs/sampling.md": (("torch.Size([1, 64, 32, 32])", "m many-to-one"), ("operator.svg",)),
    "docs/to-paper.md": ((), ("conv2d.pdf", "loops.tex", "equation.svg")),
    "docs/training.md": (("2 2400 parameters",), ()),
}
#: Pages that have tests of their own.
ELSEWHERE = {
    "docs/canvas.md", "docs/alpha.md", "docs/bring-your-model.md", "docs/own-rule.md", "docs/own-reward.md",
    "docs/first-change.md",
}  # fmt: skip


def _read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def _manual() -> dict[str, str]:
    """Each page of the manual by its path."""
    pages = [*MANUAL, *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))]
    assert len(pages) > 20
    return {page: _read(page) for page in pages}


def test_readme_is_short() -> None:
    assert len(_read("README.md").split()) <= 1200, "the manual has a page for it: docs"


def test_all_python_of_the_manual_is_run() -> None:
    assert {page for page, text in _manual().items() if "```python" in text} == {*EXAMPLES, *ELSEWHERE}


@pytest.mark.parametrize("page", EXAMPLES)
@pytest.mark.warm
def test_examples_run(page: str, tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", _read(page), re.DOTALL)
    assert examples
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
    printed, written = EXAMPLES[page]
    for words in printed:
        assert words in done.stdout
    for name in written:
        assert (tmp_path / name).is_file()
    if (tmp_path / "operator.svg").is_file():
        assert (tmp_path / "operator.svg").read_text(encoding="utf-8").startswith("<svg")


def test_the_manual_names_real_commands() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    from syno_lab.cli import app

    commands = {entry.name for entry in (*app.registered_commands, *app.registered_groups)}
    made: dict[str, set[str]] = {}
    for page, text in _manual().items():
        made[page] = set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE))
        if page != "CHANGELOG.md":  # which tells of former ones, too
            assert made[page] <= set(targets), page
            assert set(re.findall(r"(?:^|`)syno-lab ([a-z]+)", text, re.MULTILINE)) <= commands, page
    assert {"install", "demo", "test", "lab", "docs"} <= made["README.md"]
    assert {"install", "test"} <= made["CONTRIBUTING.md"]
    assert set(re.findall(r"^\| `syno-lab ([a-z]+)", _read("docs/commands.md"), re.MULTILINE)) == commands


def test_links_of_the_manual_lead_to_files() -> None:
    for page, text in _manual().items():
        for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
            assert "://" in link or ((ROOT / page).parent / link).exists(), f"{page} points to {link}"


def test_references_of_docstrings_and_comments_lead_somewhere() -> None:
    targets = []
    for module, path in documented_modules().items():
        for line, owner, role, target in references(path):
            where = f"{path.relative_to(ROOT)}:{line}"
            assert full_name(module, owner, role, target), f"{where}: no {target}; write its full name, or .NAME"
            targets.append(target)
    assert len(targets) > 1000, "no references are seen"
    for target in ("Lab.no_such", "syno_lab.jobs.no_such", ".no_such"):
        assert full_name("syno_lab.jobs.lab", "Lab", "meth", target) is None, f"{target} is said to exist"


def test_no_paragraph_of_the_manual_stands_twice() -> None:
    seen: dict[str, str] = {}
    for page, text in _manual().items():
        for paragraph in re.split(r"\n\s*\n", text):
            words = " ".join(paragraph.split())
            if len(words) > 200 and not words.startswith(("|", "```")):
                assert words not in seen, f"{page} repeats {seen[words]}: {words[:80]}"
                seen[words] = page
    assert len(seen) > 100


def test_readme_picture_is_the_program_s_own() -> None:
    from syno_lab import operators
    from syno_lab.codegen.drawing import svg

    drawn = (ROOT / "docs" / "conv2d.svg").read_text(encoding="utf-8")
    assert drawn.rstrip("\n") == svg(operators.conv2d()).rstrip("\n"), "draw it anew: `make picture`"


def test_readme_funnel_is_that_of_the_stored_search() -> None:
    from syno_lab.reports.progress import funnel_picture, progress_of

    stored = json.loads((ROOT / "benchmarks" / "results" / "search_rungs.json").read_text(encoding="utf-8"))
    progress = progress_of(stored, stored["settings"]["backbone"])
    assert progress is not None
    drawn = (ROOT / "docs" / "funnel.svg").read_text(encoding="utf-8")
    assert drawn == funnel_picture(progress) + "\n", "draw it anew: benchmarks/stored_search.py"
