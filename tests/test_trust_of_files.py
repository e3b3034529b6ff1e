"""Every place where something could become code is listed with its reason: unpickled, loaded, imported, started.

A new one fails until it is listed here and, where files come into it, said in ``docs/security.md``; a listed one that
is gone fails as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.cold

ROOT = Path(__file__).parent.parent
ROOMS = ("syno_lab", "widgets/syno_widgets")

#: Modules that bring code to life, or whose values do when they are read: each import of one is listed.
MODULES = {
    *("pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "yaml", "jsonpickle", "copyreg"),
    *("ctypes", "cffi", "runpy", "code", "codeop", "pty", "multiprocessing", "distributed", "dask", "zipimport"),
}
#: Calls by their last name, whatever they are called on.
ANYWHERE = {
    *("import_module", "load_module", "exec_module", "spec_from_file_location", "SourceFileLoader", "run_module"),
    *("Unpickler", "CDLL", "PyDLL", "LoadLibrary", "load_extension", "enable_load_extension", "run_path"),
    *("Popen", "check_output", "check_call", "getoutput", "popen", "create_subprocess_exec", "load_inline"),
    *("load_library", "load_json", "upload", "load_state_dict", "entry_points", "apply_json_to_schedule"),
    *("JSONDatabase", "posix_spawn", "spawnv", "fork", "forkpty"),
    *(f"exec{how}" for how in ("v", "ve", "vp", "vpe", "l", "le", "lp")),
}
#: Calls by a module and a name in it.
OF_A_MODULE = {
    *(f"{module}.load" for module in ("pickle", "cloudpickle", "dill", "joblib", "marshal", "yaml", "torch", "np")),
    *(f"{module}.loads" for module in ("pickle", "cloudpickle", "dill", "marshal", "yaml")),
    *("torch.export.load", "torch.jit.load", "torch.compile", "torch.hub.load", "numpy.load", "os.system"),
    *("pandas.read_pickle", "pd.read_pickle", "shelve.open", "subprocess.run", "subprocess.call"),
    *("tvm.compile", "tvm.build"),
}
#: Functions of the language itself.
BUILT_IN = {"eval", "exec", "compile", "__import__"}

#: By file and ``function what`` (``-`` outside of functions): why it runs nothing that a file or another user chose.
REASONS: dict[str, dict[str, str]] = {
    "syno_lab/__init__.py": {
        "__dir__ import_module": "a module of ours, by a name in this file",
        "__getattr__ getattr by name": "names in this file",
        "__getattr__ import_module": "a module of ours, by a name in this file",
    },
    "syno_lab/later.py": {
        "function getattr by name": "names in this file",
        "function import_module": "a file of ours, by a name in this file",
    },
    "syno_lab/alpha/module.py": {
        "GraphModule.tensor getattr by name": "a weight of the traced network, by the name that it has there",
        "_Builder._copied getattr by name": "a weight of the traced network, by the name that it has there",
    },
    "syno_lab/alpha/torch_rows.py": {"- getattr by name": "torch's layers, by names in this file"},
    "syno_lab/alpha/torch_source.py": {},
    "syno_lab/alpha/wanted.py": {"Properties.table getattr by name": "the name of a property: a row of ours"},
    "syno_lab/drawing/render.py": {
        "render subprocess.run": "the dot program of an installed package; the graph goes in as text"
    },
    "syno_lab/codegen/export.py": {
        "_export_source subprocess.run": "our own generated text, checked in a process of its own"
    },
    "syno_lab/codegen/export_check.py": {"weights_of getattr by name": "weight_1, weight_2, …: attributes of a module"},
    "syno_lab/codegen/export_program.py": {
        "save_program torch.export.load": "the file that this very call has just written"
    },
    "syno_lab/codegen/export_weights.py": {"_fill load_state_dict": "tensors of a safetensors file: no pickle"},
    "syno_lab/codegen/library.py": {
        "load_library load_module": "a compiled library is code, and the user names it: said in its docstring",
        "_tuned_module JSONDatabase": "schedules are checked first: check_database",
        "_compiled tvm.compile": "a program of ours, with such a schedule",
        "_error_of load_library": "as load_library, in a process of its own",
    },
    "syno_lab/codegen/torch_source.py": {"Writer._undo getattr by name": "methods of ours by the class of a stage"},
    "syno_lab/codegen/tvm_device.py": {"_compiles tvm.compile": "a program of ours"},
    "syno_lab/codegen/tvm_job.py": {
        "read_network torch.export.load": "a file that the parent has just written into a folder of its own",
    },
    "syno_lab/codegen/tvm_network.py": {
        "compile_network tvm.compile": "a program of ours",
        "task_module load_json": "of the parent, or of a job that the user has signed",
    },
    "syno_lab/models/stand_in.py": {
        "InPlaceOf.__init__ getattr by name": "names in this file",
        "InPlaceOf.__getattr__ getattr by name": "what the user's own network asks of its layer",
        "InPlaceOf.__setattr__ getattr by name": "what the user's own network sets in its layer",
    },
    "syno_lab/commands/jobs.py": {"_steering.command getattr by name": "the words of the commands of this file"},
    "syno_lab/commands/lab.py": {"command execv": "JupyterLab, as the command says"},
    "syno_lab/data/cifar.py": {
        "- import pickle": "admits dictionaries, lists, strings, numbers and arrays, and no name: _unpickle"
    },
    "syno_lab/data/datasets.py": {"Dataset.__post_init__ getattr by name": "fields of a value"},
    "syno_lab/doctor.py": {
        "_run subprocess.run": "our own lines, and the compiler on the path with a file of ours",
    },
    "syno_lab/generated.py": {
        "class_of compile": "text that we generated: numbers, letters of an equation and names made here",
        "class_of exec": "text that we generated: numbers, letters of an equation and names made here",
        "fill getattr by name": "weight_1, weight_2, …: attributes of a module",
    },
    "syno_lab/jobs/__init__.py": {
        "__getattr__ getattr by name": "names in this file",
        "__getattr__ import_module": "a module of ours, by a name in this file",
    },
    "syno_lab/processes/alive.py": {"boot subprocess.run": "sysctl by its path"},
    "syno_lab/jobs/away.py": {"- import distributed": "for the type checker"},
    "syno_lab/jobs/gpus.py": {"told_by_driver subprocess.run": "nvidia-smi on the user's own path, without a shell"},
    "syno_lab/commands/worker.py": {"command.start Popen": "Dask's own worker, without a shell"},
    "syno_lab/jobs/child.py": {
        "_function getattr by name": "registered kinds; a store names a kind, never a function",
        "_function import_module": "registered kinds; a store names a kind, never a function",
    },
    "syno_lab/jobs/cluster.py": {
        "Settings.__post_init__ getattr by name": "fields of a value",
    },
    "syno_lab/jobs/dispatch.py": {
        "- import distributed": "a cluster of the user's own, over TLS or on loopback",
        "connect import distributed": "a cluster of the user's own, over TLS or on loopback",
        "worker_client import distributed": "the worker that we are in",
        "send import distributed": "a cluster of the user's own, over TLS or on loopback",
    },
    "syno_lab/jobs/endpoint.py": {
        "Endpoint.security import distributed.security": "TLS: who may come in",
        "passed_on import distributed": "the worker that we are in",
    },
    "syno_lab/jobs/keeper.py": {"- import distributed": "for the type checker"},
    "syno_lab/jobs/node.py": {
        "use_steady_clock import distributed": "gives its modules another clock",
        "use_steady_clock import distributed.comm": "gives its modules another clock",
    },
    "syno_lab/jobs/records.py": {"to_row getattr by name": "fields of a value"},
    "syno_lab/jobs/supervise.py": {
        "_send import distributed": "the worker that we are in",
        "supervise import distributed": "the worker that we are in",
    },
    "syno_lab/reports/icicle.py": {
        "_test getattr by name": "fields of a value, by names in this file",
        "listed getattr by name": "fields of a value",
    },
    "syno_lab/reports/rows.py": {"TrialRow.value getattr by name": "fields of a value"},
    "syno_lab/reports/why.py": {
        "_over getattr by name": "fields of a value, by names in this file",
        "why_tables getattr by name": "fields of a value, by names in this file",
    },
    "syno_lab/experiments/driver.py": {"Driver._spending getattr by name": "fields of a value"},
    "syno_lab/settings.py": {"check_bounds getattr by name": "fields of a value"},
    "syno_lab/cli.py": {"- import_module": "modules of ours, by names in this file"},
    "syno_lab/store/records.py": {"plain getattr by name": "tolist and __fspath__"},
    "syno_lab/data/text.py": {"TextData.__post_init__ getattr by name": "fields of a value"},
    "syno_lab/systems.py": {
        "_load getattr by name": "a system that a row of ours, or the user's environment variable, names",
        "_load import_module": "the same: a file names a format, never a module",
    },
    "syno_lab/testing/numbers.py": {
        "by_source np.load": "an array that our own child process has just written; without pickle",
        "by_source subprocess.run": "Python with our own program, on the source of the operator under test",
        "slope getattr by name": "weight_1, weight_2, …: attributes of a module",
    },
    "syno_lab/testing/tvm_child.py": {
        "output_of load_module": "the builder of a registered system",
        "output_of tvm.compile": "the unscheduled loops of the operator under test",
    },
    "syno_lab/training/checkpoint.py": {
        "load_checkpoint load_state_dict": "tensors",
        "load_checkpoint torch.load": "weights_only: tensors and plain data, no other class",
    },
    "syno_lab/processes/board_server.py": {
        "- import multiprocessing": "the server and its sessions",
        "import_tvm import_module": "TVM",
        "power_mode subprocess.run": "nvpmodel",
    },
    "syno_lab/tuning/child.py": {
        "Tuning.search load_module": "as load_module",
        "load_module getattr by name": "the builder of the request: the caller names it, a job one of a system's",
        "load_module import_module": "the builder of the request: the caller names it, a job one of a system's",
    },
    "syno_lab/tuning/emulated_files.py": {"_run subprocess.run": "programs that unpack, by their names"},
    "syno_lab/tuning/explain.py": {
        "schedule_job load_module": "as load_module",
        "space_job load_module": "as load_module",
    },
    "syno_lab/tuning/jobs.py": {
        "apply_trace apply_json_to_schedule": "checked first: check_trace",
        "measure upload": "to the board: what we have just compiled",
        "upload load_module": "on the board: what we have just compiled",
        "upload upload": "to the board: what we have just compiled",
        "compile_candidate tvm.compile": "a program of ours under a schedule",
        "reference tvm.compile": "a program of ours",
        "read_database JSONDatabase": "parsed only, in a process that may crash",
    },
    "syno_lab/processes/light.py": {
        "import_tvm import_module": "TVM",
        "import_xgboost import_module": "XGBoost",
        "tame_intrinsics import_module": "TVM's own modules, by names in our source",
    },
    "syno_lab/tuning/measuring.py": {
        "_errors np.load": "arrays of our children; without allow_pickle NumPy unpickles nothing",
        "_torch_way getattr by name": "weight_1, weight_2, …: attributes of a module",
        "_times load_module": "our own builder; and what it has just compiled",
        "_tvm_way load_module": "as load_module",
        "_tvm_way tvm.compile": "a program of ours under a schedule",
    },
    "syno_lab/processes/process.py": {
        "output_of subprocess.run": "our own modules, with the paths of what we wrote",
        "spawn Popen": "our own processes, Dask's commands, the emulator of a board with digests; without a shell",
    },
    "syno_lab/tuning/network.py": {
        "_write_database JSONDatabase": "a folder of this very call, emptied first",
        "_write_database load_json": "of the parent: a function of a network that it has just taken apart",
        "run_all np.load": "arrays of the parent; without allow_pickle NumPy unpickles nothing",
        "run_all upload": "to the board: what we have just compiled",
    },
    "syno_lab/tuning/parts.py": {"python_cost_model getattr by name": "three names in our source"},
    "syno_lab/tuning/search.py": {
        "Search._open_database JSONDatabase": "schedules are checked first: check_database",
    },
    "syno_lab/tuning/spaces.py": {
        "_load exec_module": "the user's own rule: given in this very call, or in a job that they signed",
        "_load getattr by name": "the user's own rule: given in this very call, or in a job that they signed",
        "_load spec_from_file_location": "the user's own rule: given in this very call, or in a job that they signed",
    },
    "syno_lab/user_code.py": {
        "UserCode.value compile": "a function that the user names in this call or command, or in a job they signed",
        "UserCode.value exec": "the same; trial/own.py says who may call it, and tests/experiments/test_improve.py",
    },
    "syno_lab/tuning/values.py": {"TuningTask.request getattr by name": "fields of a value"},
    "syno_lab/processes/worker.py": {
        "- import multiprocessing": "between our own processes, over pipes",
        "- import multiprocessing.connection": "between our own processes, over pipes",
    },
    "syno_lab/ir/spec.py": {
        "Limits.__post_init__ getattr by name": "fields of a value",
        "Limits.of getattr by name": "fields of a value",
    },
    "syno_lab/synthesis/fields.py": {"SpecFields.from_spec getattr by name": "fields of a value"},
    "widgets/syno_widgets/__init__.py": {
        "__getattr__ getattr by name": "names in this file",
        "__getattr__ import_module": "a module of ours, by a name in this file",
    },
    "widgets/syno_widgets/attached.py": {
        "AttachedLab.__getattr__ getattr by name": "what the notebook asks of its lab"
    },
    "widgets/syno_widgets/jobs_view.py": {"steer getattr by name": "one of possible_actions"},
    "widgets/syno_widgets/operator_view.py": {
        "OperatorView._is_current getattr by name": "traits of the widget, by names in this file",
        "OperatorView._shown getattr by name": "traits of the widget, by names of panes that the browser can draw",
    },
    "widgets/syno_widgets/stepper.py": {"Stepper._begin getattr by name": "one of four names that its case lists"},
    "widgets/syno_widgets/view.py": {"View._page_state getattr by name": "traits of the widget, by names in this file"},
}


def calls(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each call or import that could bring code to life, and the function that it is in (empty for a module's own)."""

    def visit(node: ast.AST, inside: str) -> Iterator[tuple[str, str]]:
        for child in ast.iter_child_nodes(node):
            within = inside
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                within = f"{inside}.{child.name}".lstrip(".")
            elif isinstance(child, ast.Import):
                yield from ((inside, f"import {a.name}") for a in child.names if a.name.partition(".")[0] in MODULES)
            elif isinstance(child, ast.ImportFrom) and (child.module or "").partition(".")[0] in MODULES:
                yield inside, f"import {child.module}"
            elif isinstance(child, ast.Call):
                name = ast.unparse(child.func)
                last = name.rpartition(".")[2]
                if name in BUILT_IN or last in ANYWHERE or name in OF_A_MODULE:
                    yield inside, name if name in BUILT_IN | OF_A_MODULE else last
                elif name == "getattr" and not isinstance(child.args[1], ast.Constant):
                    yield inside, "getattr by name"
            yield from visit(child, within)

    return visit(tree, "")


def found(room: Path) -> set[tuple[str, str]]:
    """All of them in a folder, with the file."""
    listed = set()
    for path in sorted(room.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        listed |= {(path.relative_to(ROOT).as_posix(), f"{inside or '-'} {what}") for inside, what in calls(tree)}
    return listed


def test_the_search_finds_what_it_should() -> None:
    text = """
import pickle, ctypes.util
from multiprocessing import Pool
class A:
    def f(self, name):
        torch.load(name); thing.load_module(name); eval(name); getattr(self, name); getattr(self, "x")
        def g():
            subprocess.run([name]); model.eval(); re.compile(name); os.execv(name, [])
"""
    assert sorted(calls(ast.parse(text))) == [
        ("", "import ctypes.util"),
        ("", "import multiprocessing"),
        ("", "import pickle"),
        ("A.f", "eval"),
        ("A.f", "getattr by name"),
        ("A.f", "load_module"),
        ("A.f", "torch.load"),
        ("A.f.g", "execv"),
        ("A.f.g", "subprocess.run"),
    ]


def test_every_place_has_its_reason() -> None:
    there = set().union(*(found(ROOT / room) for room in ROOMS))
    listed = {(file, place) for file, places in REASONS.items() for place in places}
    assert there - listed == set(), "new: write down why it runs nothing that a file or another user chose"
    assert listed - there == set(), "gone: take it off the list"
    assert all(reason for places in REASONS.values() for reason in places.values())


def test_no_pickles_no_shell_and_no_modules_of_the_folder() -> None:
    # The two readers of formats that may hold pickles have to be told not to; NumPy refuses by itself.
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    options = {word.arg: ast.unparse(word.value) for word in node.keywords}
                    assert options.get("allow_pickle", "False") == "False", path
                    if ast.unparse(node.func) == "torch.load":
                        assert options.get("weights_only") == "True", path
                    assert options.get("shell", "False") == "False", path
                elif isinstance(node, ast.List) and node.elts and ast.unparse(node.elts[0]) == "sys.executable":
                    # Else a module in the folder that somebody has opened would be taken for one of Python's.
                    assert ast.unparse(node.elts[1]) in ("'-P'", "'-I'"), path
