"""A compiled library of an operator for a target, with a description file beside it.

``conv.so`` (linked here) or ``conv.tar`` (object files, linked on loading) holds one function ``main(X, W1, ..., Y)``.
``conv.so.json`` holds the operator, the binding, the target and the versions, so that a loader can compare them with
the expected values. TVM and torch are imported only to load a library. Compilation and checks run in child processes.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from syno_lab.codegen.tvm_job import DEADLINE_S
from syno_lab.errors import FormatError, SynoError
from syno_lab.inputs import check_regular, is_file, quoted, read_bytes
from syno_lab.processes.light import import_tvm
from syno_lab.processes.worker import once
from syno_lab.protocol import Binding, OfNetworks, Operator
from syno_lab.scratch import scratch
from syno_lab.systems import read_operator, system_of
from syno_lab.version import __version__
from syno_lab.versioned import read_versioned

if TYPE_CHECKING:
    import numpy as np
    from tvm.ir import IRModule
    from tvm.target import Target

FORMAT = "syno-lab-library"
VERSION = 1
SUFFIXES = (".so", ".tar")
_MOST_BYTES, _MOST_RECORD = 1 << 28, 1 << 21  # the limits in bytes of a library and of a description


class LibraryRecord(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The description of a library.

    Attributes:
        operator: the text of the operator's file.
        binding: the value of each variable.
        dtype: the dtype of all tensors.
        target: TVM's description of the target, as JSON text.
        kind: ``llvm``, ``cuda``, …
        machine: the architecture of the processor that loads the library, such as ``x86_64`` or ``aarch64``.
        tuned: whether the schedule comes from a tuning.
        device_code: ``source`` for a GPU, whose TVM compiles the source on loading (with nvcc or NVRTC); None for a
            processor.
        sha256: the hash of the library's file.
        syno_lab: the version of Syno Lab that wrote the library.
        tvm: the version of TVM that compiled the library.
    """

    format: str
    version: int
    operator: str
    binding: dict[str, int]
    dtype: str
    target: str
    kind: str
    machine: str
    tuned: bool
    device_code: str | None
    sha256: str
    syno_lab: str
    tvm: str


def sidecar(path: str | os.PathLike[str]) -> Path:
    """Return the path of a library's description file."""
    return Path(f"{os.fspath(path)}.json")


def save_library(
    operator: Operator,
    path: str | os.PathLike[str],
    binding: Binding | None = None,
    *,
    target: str = "local",
    dtype: str = "float32",
    records: str | os.PathLike[str] | None = None,
    deadline_s: float = DEADLINE_S,
) -> LibraryRecord:
    """Implement :meth:`.Operator.save_library` for any system. Raises SynoError for a whole network too."""
    place = Path(path)
    if place.suffix not in SUFFIXES:
        raise SynoError(f"expected the path of a library to end in {' or '.join(SUFFIXES)}, found {quoted(place.name)}")
    if not place.absolute().parent.is_dir():
        raise SynoError(f"expected a folder for the library, found none at {place.absolute().parent}")
    system = system_of(operator)
    if isinstance(system, OfNetworks):
        raise SynoError(
            f"expected an operator for layers, which is one function, found a whole network of {system.title}; "
            "compile it by `syno-lab network`"
        )
    bound = operator.complete_binding(binding)
    operator.input_sizes(bound), operator.flops(bound)  # raise SpecError if the binding makes a size fractional
    text = operator.to_json()
    records_path = None if records is None else os.fspath(Path(records).resolve())
    with scratch(".library-", place.absolute().parent) as folder:
        # Each file is written to another path and then moved, so that no reader sees an incomplete file.
        built = folder / place.name
        job = (text, bound, dtype, target, records_path, str(built))
        record = once(f"library {place.name}", _compiled, *job, deadline_s=deadline_s, has_tvm=False)
        sidecar(built).write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
        sidecar(built).replace(sidecar(place))
        built.replace(place)
    return record


def library_record(path: str | os.PathLike[str]) -> LibraryRecord:
    """Read the description of the library at ``path``, and check that the library has the hash in the description.

    Raises FormatError when the description is missing, or has another version or hash.
    """
    place, beside = Path(path), sidecar(path)
    for file in (place, beside):
        if not is_file(file):
            raise FormatError(
                f"library {place.name}: expected the files {place.name} and {beside.name}, found no {file}"
            )
    try:
        check_regular(place, _MOST_BYTES)
        text = read_bytes(beside, _MOST_RECORD)
    except OSError as error:
        raise FormatError(f"library {place.name}: {error.filename}: {error.strerror or error}") from None
    record = read_versioned(
        text, LibraryRecord, what=f"library {place.name}", name=FORMAT, version=VERSION, most=_MOST_RECORD
    )
    digest = _sha256(place)
    if digest != record.sha256:
        raise FormatError(
            f"library {place.name}: expected the file that {beside.name} describes (sha256 "
            f"{quoted(record.sha256[:12])}…), found another ({digest[:12]}…); save it again"
        )
    return record


@dataclass(frozen=True)
class Library:
    """A loaded library: a function of arrays, input first, then the weights in the order of ``operator.weights``."""

    record: LibraryRecord
    operator: Operator
    function: Any

    def __call__(self, *arrays: Any) -> np.ndarray[Any, Any]:
        """Return the output [as ``operator.output_sizes``].

        Raises SynoError for a wrong number, shape or dtype of arrays.
        """
        import numpy as np
        import tvm

        binding, dtype = self.record.binding, self.record.dtype
        shapes = [self.operator.input_sizes(binding), *self.operator.weight_sizes(binding)]
        inputs = [np.asarray(array) for array in arrays]
        if [item.shape for item in inputs] != shapes or any(str(item.dtype) != dtype for item in inputs):
            shapes_found = ", ".join(f"{list(item.shape)} {item.dtype}" for item in inputs) or "none"
            raise SynoError(
                f"expected arrays of shapes {', '.join(str(list(s)) for s in shapes)} {dtype}, found {shapes_found}"
            )
        device = tvm.device("cpu" if self.record.kind == "llvm" else self.record.kind, 0)
        output = tvm.runtime.empty(self.operator.output_sizes(binding), dtype, device)
        self.function(*(tvm.runtime.tensor(np.ascontiguousarray(item), device) for item in inputs), output)
        result: np.ndarray[Any, Any] = output.numpy()
        return result

    def error(self, seed: int = 0) -> float:
        """Return the largest difference from the reference on random numbers, relative to the largest output."""
        import numpy as np

        binding = self.record.binding
        generator = np.random.default_rng(seed)
        shapes = self.operator.input_sizes(binding), *self.operator.weight_sizes(binding)
        arrays = [np.asarray(generator.standard_normal(shape)).astype(self.record.dtype) for shape in shapes]
        want = self.operator.reference(*(array.astype("float64") for array in arrays), binding=binding)
        return float(np.abs(self(*arrays) - want).max() / max(1.0, float(np.abs(want).max())))


def load_library(
    path: str | os.PathLike[str],
    *,
    operator: Operator | None = None,
    binding: Mapping[str, int] | None = None,
    dtype: str | None = None,
) -> Library:
    """Load the library at ``path`` into this process. A library is machine code, so load only files that you trust.

    ``operator``, ``binding`` and ``dtype`` are the expected values; None accepts any value.

    Raises:
        FormatError: as :func:`library_record`, or the library has another operator, binding or dtype.
        SynoError: the library is for another machine, or TVM cannot load it.
    """
    place = Path(path)
    record = library_record(place)
    stored = read_operator(record.operator)
    if operator is not None and operator != stored:
        raise FormatError(f"library {place.name}: expected the operator {operator}, found that of {stored}")
    if binding is not None and stored.complete_binding(binding) != record.binding:
        raise FormatError(f"library {place.name}: expected the binding {dict(binding)}, found {record.binding}")
    if dtype is not None and dtype != record.dtype:
        raise FormatError(f"library {place.name}: expected {dtype}, found {record.dtype}")
    if record.machine != platform.machine():
        raise SynoError(
            f"library {place.name}: expected one for this machine ({platform.machine()}), found one for "
            f"{record.machine}; load it there"
        )
    import tvm

    if record.kind != "llvm" and not tvm.runtime.enabled(record.kind):
        raise SynoError(f"library {place.name}: expected a TVM with {record.kind} and its driver, found none here")
    with scratch("syno-library-") as folder:
        # TVM links a .tar in the folder of the file. The user's folder must not be changed.
        loaded = shutil.copy(place, folder) if place.suffix == ".tar" else place.absolute()
        try:
            function = tvm.runtime.load_module(str(loaded))["main"]
        except (RuntimeError, AttributeError, OSError, ValueError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[-1][:300]
            raise SynoError(
                f"library {place.name}: expected one that TVM {tvm.__version__} loads, found: {reason}"
            ) from None
    return Library(record, stored, function)


def check_library(path: str | os.PathLike[str], *, seed: int = 0, deadline_s: float = DEADLINE_S) -> float:
    """Load the library in a child process and compare it with the operator's reference on random numbers.

    Returns the largest difference, relative to the largest output. Raises SynoError if :func:`load_library` fails.
    """
    place = Path(path).absolute()
    return once(f"library {place.name}", _error_of, str(place), seed, deadline_s=deadline_s, has_tvm=False)


# -- in child processes ------------------------------------------------------------------------------------------------


def _error_of(path: str, seed: int) -> float:
    import_tvm()
    return load_library(path).error(seed)


def _compiled(
    text: str, binding: dict[str, int], dtype: str, name: str, records: str | None, path: str
) -> LibraryRecord:
    """Compile the library of :func:`save_library` for the target ``name``, and write the library to ``path``."""
    tvm = import_tvm()
    from syno_lab.codegen.tvm_device import export, find_target, for_target, linker_for, machine, with_host

    target = with_host(find_target(name))
    where = machine(target)
    is_linked = where != platform.machine() and not path.endswith(".tar")
    linker = linker_for(where) if is_linked else None
    if is_linked and linker is None:
        raise SynoError(
            f"expected {where}-linux-gnu-g++ on the PATH to link a library for {where}, found none; "
            "save it as a .tar, which is linked where it is loaded"
        )
    module = read_operator(text).to_tvm(binding, dtype=dtype)
    tuned = None if records is None else _tuned_module(module, target, records)
    if tuned is None and records is not None:
        raise SynoError(f"expected a record of this operator and binding in {records}, found none")
    compiled = tvm.compile(for_target(module, target) if tuned is None else tuned, target=target)
    export(compiled, path, linker)
    return LibraryRecord(
        FORMAT,
        VERSION,
        operator=text,
        binding=binding,
        dtype=dtype,
        target=str(target),
        kind=str(target.kind.name),
        machine=where,
        tuned=tuned is not None,
        device_code="source" if "gpu" in target.keys else None,
        sha256=_sha256(Path(path)),
        syno_lab=__version__,
        tvm=tvm.__version__,
    )


def _tuned_module(module: IRModule, target: Target, records: str) -> IRModule | None:
    """Return ``module`` with the best schedule from a folder of records; None if no record is for this module."""
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    from syno_lab.codegen.tvm_trace import check_database

    check_database(records)
    database = ms.database.JSONDatabase(work_dir=records, allow_missing=False)
    schedule = ms.tir_integration.compile_tir(database, module, target)
    if schedule is None:
        return None
    return RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
