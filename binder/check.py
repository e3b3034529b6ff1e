"""Build Binder's environment anew from its files, as repo2docker does, and run notebooks in it: ``make binder``.

The files of the last commit are copied to a folder of their own, which is what Binder sees; there the Python that
``runtime.txt`` names gets an environment, pip installs ``requirements.txt``, ``postBuild`` runs, everything installed
is compared with ``constraints.txt``, and notebooks are run from a clean kernel. What this lacks of repo2docker is its
container: the system's packages are those of this machine.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ("notebooks/01_tour.ipynb", "notebooks/course/01_coordinates_and_primitives.ipynb")
BY_VENV = {"pip", "setuptools"}  # there before anything is installed


def clone(root: Path, folder: Path) -> None:
    """The files of the last commit, which are all that Binder sees."""
    words = ["git", "archive", "--format=tar", "HEAD"]
    done = subprocess.run(words, cwd=root, stdout=subprocess.PIPE, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")


def pins(text: str) -> dict[str, str]:
    """Version by name, of lines ``name==version`` as in constraints and ``pip freeze``; others are left out."""
    lines = [line.split(";")[0].strip() for line in text.splitlines()]
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {name.strip().lower().replace("_", "-").replace(".", "-"): version.strip() for name, version in pairs}


def not_pinned(frozen: str, constraints: str) -> Iterator[str]:
    """What is installed and not in the constraints, or in another version; builds such as ``+cpu`` are the same one."""
    wanted = pins(constraints)
    for name, version in pins(frozen).items():
        if name not in BY_VENV and version.partition("+")[0] != wanted.get(name):
            yield f"{name} {version} is installed, and constraints.txt says {wanted.get(name, 'nothing')}"


def main() -> int:
    """Build and run; 0 when all is well, else the status of what failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--folder", type=Path, help="where to build and to leave it, new; else a temporary one")
    chosen = parser.parse_args()
    runtime = (ROOT / "binder" / "runtime.txt").read_text(encoding="utf-8").strip()
    here = f"python-{sys.version_info.major}.{sys.version_info.minor}"
    if runtime != here:
        sys.exit(f"expected to be run by {runtime} (binder/runtime.txt), found {here}; make binder PYTHON=…")
    with tempfile.TemporaryDirectory(prefix="syno-binder-") as temporary:
        folder = (chosen.folder or Path(temporary) / "home").resolve()
        folder.mkdir(parents=True)
        return build(folder / "repository", folder / "environment")


def build(repository: Path, environment: Path) -> int:
    """As repo2docker: an environment beside a copy of the repository, and notebooks run in it."""
    clone(ROOT, repository)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JUPYTER", "VIRTUAL_"))}
    kept |= {"PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    kept.pop("PIP_CONSTRAINT", None)  # the files alone say what is installed
    python = str(environment / "bin" / "python")
    steps = [
        [sys.executable, "-m", "venv", str(environment)],
        [python, "-m", "pip", "install", "--quiet", "-r", "binder/requirements.txt"],
        [str(repository / "binder" / "postBuild")],
        *(
            [python, "-m", "nbconvert", "--to", "notebook", "--execute", "--output-dir", str(environment), name]
            for name in NOTEBOOKS
        ),
    ]
    for step in steps:
        print("$", *step, flush=True)
        done = subprocess.run(step, cwd=repository, env=kept, check=False)
        if done.returncode:
            print(f"binder: this failed with status {done.returncode}: {' '.join(step)}", file=sys.stderr)
            return done.returncode
    freeze = [python, "-m", "pip", "freeze", "--exclude-editable"]
    frozen = subprocess.run(freeze, cwd=repository, env=kept, capture_output=True, text=True, check=True).stdout
    wrong = list(not_pinned(frozen, (repository / "constraints.txt").read_text(encoding="utf-8")))
    for line in wrong:
        print(f"binder: {line}", file=sys.stderr)
    if not wrong:
        print(f"binder: {len(pins(frozen))} packages as pinned, {len(NOTEBOOKS)} notebooks run")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
