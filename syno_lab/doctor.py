"""Check whether a machine has all that the lab needs; a check that may crash runs in a child process."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from syno_lab.errors import SynoError
from syno_lab.processes.findings import Finding
from syno_lab.scratch import scratch

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM_VARIABLE = "SYNO_CHROMIUM"
_DEADLINE_S = 120.0
_PYTHONS = ((3, 11), (3, 12))

_TORCH = """
import torch
torch.einsum("ij,jk->ik", torch.eye(2), torch.ones(2, 2))
print(torch.__version__, torch.get_num_threads(), torch.cuda.is_available())
"""

# The wrong apache-tvm-ffi crashes when it saves, and MetaSchedule saves every tuning record.
_TVM = """
from syno_lab.processes.light import import_tvm
from syno_lab.scratch import scratch
tvm = import_tvm()
from tvm import te
from tvm.ir import load_json, save_json
A = te.placeholder((4,), name="A")
B = te.compute((4,), lambda i: A[i] * 2.0, name="B")
load_json(save_json(tvm.IRModule({"main": te.create_prim_func([A, B])})))
import tvm.s_tir.meta_schedule
print(tvm.__version__)
"""


Check = Callable[[], Finding]


def run_check(check: Check) -> Finding:
    """Return ``check()``, or a finding if the check raises an exception."""
    try:
        return check()
    except (OSError, subprocess.SubprocessError, metadata.PackageNotFoundError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        return Finding(check.__name__, False, True, f"could not be tried: {reason}", "Install Syno Lab afresh.")


def python() -> Finding:
    """Python itself."""
    wanted = " or ".join(f"{major}.{minor}" for major, minor in _PYTHONS)
    return Finding(
        "Python",
        sys.version_info[:2] in _PYTHONS,
        True,
        f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        f"Make an environment with Python {wanted}.",
    )


def compiler() -> Finding:
    """A C++ compiler that can link a shared library, as MetaSchedule and torch.compile do."""
    advice = "Install one, such as g++ (Debian: apt-get install g++), or name it in the environment variable CXX."
    name = os.environ.get("CXX") or next((c for c in ("g++", "clang++", "c++") if shutil.which(c)), None)
    path = shutil.which(name) if name else None
    if path is None:
        return Finding("C++ compiler", False, True, f"no {name or 'g++ or clang++'} on the PATH", advice)
    with scratch("syno-doctor-") as folder:
        source = folder / "try.cpp"
        source.write_text('#include <vector>\nextern "C" int size() { return std::vector<int>(3).size(); }\n')
        done = _run([path, "-shared", "-fPIC", "-o", str(folder / "try.so"), str(source)], dict(os.environ))
    if done.returncode != 0:
        return Finding("C++ compiler", False, True, f"{path} cannot link: {_last_line(done.stderr)}", advice)
    return Finding("C++ compiler", True, True, f"{path} links a shared library")


def torch() -> Finding:
    """PyTorch."""
    ok, output = _try_python(_TORCH)
    if not ok:
        return Finding("PyTorch", False, True, output, "Install it as the README says (`make install`).")
    version, threads, cuda = output.split()
    device = "with CUDA" if cuda == "True" else "on the CPU"
    return Finding("PyTorch", True, True, f"{version} {device}, {threads} threads")


def tvm() -> Finding:
    """TVM together with its apache-tvm-ffi."""
    pair = ", ".join(f"{name} {_version(name)}" for name in ("apache-tvm", "apache-tvm-ffi"))
    ok, output = _try_python(_TVM)
    if ok:
        return Finding("TVM", True, True, f"{pair}; saves and loads a module")
    return Finding(
        "TVM",
        False,
        True,
        f"{pair}; {output}",
        "Install the pair that goes together, as in constraints.txt: 0.27.0.post1 with 0.1.14.post1 "
        "(0.1.15 takes the process down when a record is saved).",
    )


def tunings() -> Finding:
    """The accounts that can reach a tuning while it runs."""
    from syno_lab.processes.own_listener import tells

    every = "every account of this machine, which can run any code"
    reachable_by = "nobody else" if tells() else f"{every} as you"
    return Finding(
        "who reaches a tuning",
        True,
        False,
        "on this machine nobody else: it opens no socket; trackers and boards that the lab starts on loopback "
        f"(`syno-lab board`, `--emulate`): {reachable_by}, and by SSH the accounts of the board; TVM's own tracker: "
        f"{every} on its boards",
    )


def layout() -> Finding:
    """Graphviz's layout program, from a Python package."""
    from syno_lab.systems import opened

    name = "graphviz-pure"
    advice = "Install the Python package graphviz-pure; no system package is needed."
    try:
        drawn = opened("known:conv2d").svg()
    except SynoError as error:
        return Finding(name, False, True, str(error), advice)
    return Finding(name, "<svg" in drawn, True, f"{_version(name)} draws a pGraph", advice)


def jupyterlab() -> Finding:
    """JupyterLab."""
    try:
        versions = f"{metadata.version('jupyterlab')}, with ipywidgets {metadata.version('ipywidgets')}"
    except metadata.PackageNotFoundError as error:
        return Finding("JupyterLab", False, True, f"no {error.name}", "Install it as the README says (`make install`).")
    return Finding("JupyterLab", True, True, versions)


def data() -> Finding:
    """Images to train on."""
    from syno_lab.data.cifar import find_cifar
    from syno_lab.data.datasets import DATA_VARIABLE
    from syno_lab.errors import DataError

    name, folder = "images", os.environ.get(DATA_VARIABLE)
    advice = f"Name a folder with CIFAR-10 or CIFAR-100 in --data or in {DATA_VARIABLE}; --data digits always works."
    if not folder:
        return Finding(
            name, True, False, f"{DATA_VARIABLE} is not set: scikit-learn's digits, unless --data names others"
        )
    try:
        path, form = find_cifar(Path(folder).expanduser())
    except DataError as error:
        return Finding(name, False, True, str(error), advice)
    return Finding(name, True, False, f"{form.name} in {path}")


def chromium() -> Finding:
    """Chromium, which only the browser tests need."""
    path = find_chromium()
    return Finding(
        "Chromium (for `make test` only)",
        path is not None,
        False,
        path or f"none of {', '.join(CHROMIUM_NAMES)} on the PATH",
        f"Install it (Debian: apt-get install chromium), or name it in {CHROMIUM_VARIABLE}.",
    )


def find_chromium() -> str | None:
    """Return the path of Chromium: ``SYNO_CHROMIUM``, or the first of the usual names on the PATH."""
    named = os.environ.get(CHROMIUM_VARIABLE)
    return next((path for name in ((named,) if named else CHROMIUM_NAMES) if (path := shutil.which(name))), None)


def tools() -> Finding:
    """Programs for the repository: git and make."""
    missing = [name for name in ("git", "make") if shutil.which(name) is None]
    return Finding(
        "git and make (for the repository)",
        not missing,
        False,
        f"no {' and no '.join(missing)} on the PATH" if missing else "both on the PATH",
        f"Install them (Debian: apt-get install {' '.join(missing)}).",
    )


CHECKS: tuple[Check, ...] = (python, compiler, torch, tvm, tunings, layout, jupyterlab, data, tools, chromium)


def _try_python(code: str) -> tuple[bool, str]:
    """Run code in a child process; return whether it succeeded, and its last line or the reason of its failure."""
    from syno_lab.processes.process import describe_exit, own_environment

    try:
        done = _run([sys.executable, "-P", "-c", code], own_environment())
    except subprocess.TimeoutExpired:
        return False, f"no answer in {_DEADLINE_S:g} s"
    if done.returncode == 0:
        return True, _last_line(done.stdout)
    message = _last_line(done.stderr)
    return False, f"{describe_exit(done.returncode)}{f': {message}' if message else ''}"


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_DEADLINE_S,
        check=False,
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "is not installed"


def _last_line(text: str, limit: int = 300) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:limit] if lines else ""
