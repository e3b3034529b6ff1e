"""The record in an exported file: which operators it has, in which submodules, and for which sizes.

A record is JSON. ONNX files store it in the metadata, ``.pt2`` archives as an extra file, safetensors files in the
header. Python files store the record as constants. :func:`read_operator` reads the operator without running the file.
"""

from __future__ import annotations

import ast
import hashlib
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from syno_lab.codegen import library
from syno_lab.errors import FormatError, SynoError
from syno_lab.inputs import QUOTED, check_regular, printable, quoted, read_bytes
from syno_lab.ir.operator import Operator as PGraph
from syno_lab.protocol import Binding, Operator
from syno_lab.systems import MAX_BYTES, is_operator
from syno_lab.systems import read_operator as read_json
from syno_lab.versioned import read_versioned

if TYPE_CHECKING:
    from torch import nn

FORMAT = "syno-lab-export"
VERSION = 1
#: The key of the record in metadata. In archives the record is the file ``<key>.json``.
KEY = "syno_lab"
_MAX_PYTHON_BYTES = 4 << 20
_MAX_ONNX_BYTES = 1 << 31  # protobuf's limit


class Place(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The operator of one submodule: its identity (a key of ``Record.operators``) and its sizes."""

    operator: str
    binding: dict[str, int]


class Record(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The operators of a file: their JSON by identity, and a Place by the path of each submodule.

    If a file has a single operator, the operator's path is ``""``.
    """

    format: str
    version: int
    operators: dict[str, str]
    places: dict[str, Place]

    def to_json(self) -> str:
        """Return the record as one line of JSON."""
        return msgspec.json.encode(self).decode()

    def operator(self, place: str) -> Operator:
        """Return the operator at the path ``place``. Raises FormatError when the operator's JSON is not legal."""
        return read_json(self.operators[self.places[place].operator])


def identity(operator: Operator) -> str:
    """Return the operator's identity, 32 hexadecimal digits.

    pGraphs with equal steps and shapes have equal digits; default sizes are ignored. Operators of another system have
    equal digits if their JSON is equal. Unlike the fingerprint, the identity depends on the order of the steps, which
    numbers the weights.
    """
    record = msgspec.json.decode(operator.to_json())
    for kind in ("primary", "coefficient") if isinstance(operator, PGraph) else ():
        record[kind] = [variable.partition("=")[0] for variable in record[kind]]
    return hashlib.sha256(msgspec.json.encode(record)).hexdigest()[:32]


def record_of(places: Mapping[str, tuple[Operator, Binding]]) -> Record:
    """Return the record for operators and bindings by the paths of their submodules."""
    operators: dict[str, str] = {}
    placed: dict[str, Place] = {}
    for path, (operator, binding) in places.items():
        name = identity(operator)
        operators.setdefault(name, compact_json(operator))
        placed[path] = Place(name, operator.complete_binding(binding))
    return Record(FORMAT, VERSION, operators, placed)


def operators_in(module: nn.Module) -> dict[str, tuple[Operator, dict[str, int]]]:
    """Return the operators in ``module`` with their bindings, by the submodules' paths; ``""`` is the module itself."""
    return {
        path: (part.operator, part.binding)
        for path, part in module.named_modules()
        if is_operator(getattr(part, "operator", None)) and hasattr(part, "binding")
    }


def compact_json(operator: Operator) -> str:
    """Return ``operator.to_json()`` without line breaks."""
    return msgspec.json.format(operator.to_json(), indent=-1)


def parse_record(text: str | bytes, where: str) -> Record:
    """Parse the text of :meth:`Record.to_json`. Raises FormatError for any other text."""
    record = read_versioned(text, Record, what=where, name=FORMAT, version=VERSION, most=MAX_BYTES)
    for place in record.places.values():
        if place.operator not in record.operators:
            raise FormatError(f"{where}: expected one of the file's operators, found {quoted(place.operator)}")
    return record


def read_record(path: str | Path) -> Record:
    """Read the record in an exported file, by the format of its suffix; nothing in the file is run.

    Raises FormatError when the file cannot be read or was not exported by Syno Lab.
    """
    path = Path(path)
    kinds: dict[str, tuple[str, Callable[[Path], str | bytes | Record | None], int | None]] = {
        ".onnx": ("an ONNX file", _in_onnx, _MAX_ONNX_BYTES),
        ".pt2": ("a .pt2 archive of torch.export", _in_archive, None),
        ".safetensors": ("a safetensors file", _in_safetensors, None),
        ".py": ("a Python file exported by Syno Lab", _in_python, _MAX_PYTHON_BYTES),
    }
    if path.suffix not in kinds:
        raise FormatError(
            f"{path}: expected a file named {', '.join('*' + s for s in kinds)}, found {quoted(path.suffix)}"
        )
    kind, read, most = kinds[path.suffix]
    try:
        check_regular(path, most)
        with path.open("rb"):
            pass
    except OSError as error:
        raise FormatError(f"{path}: expected a readable file, found: {error.strerror or error}") from None
    try:
        text = read(path)
    except SynoError:
        raise
    except Exception as error:  # noqa: BLE001 - libraries raise any error for a damaged file
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise FormatError(f"{path}: expected {kind}, found something else ({printable(reason, 2 * QUOTED)})") from None
    if text is None:
        raise FormatError(f"{path}: expected a file exported by Syno Lab, found one without the record {quoted(KEY)}")
    return text if isinstance(text, Record) else parse_record(text, str(path))


def read_operator(path: str | Path) -> tuple[Operator, dict[str, int]]:
    """Read the operator and its binding from an exported file or a compiled library; nothing in the file is run.

    Raises FormatError when the file was not exported by Syno Lab, or holds a network instead of one operator.
    """
    if Path(path).suffix in library.SUFFIXES:
        description = library.library_record(path)
        return read_json(description.operator), description.binding
    record = read_record(path)
    if list(record.places) != [""]:
        raise FormatError(f"{path}: expected a file of one operator, found a network with {len(record.places)}")
    try:
        return record.operator(""), record.places[""].binding
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None


def _in_onnx(path: Path) -> str | None:
    import onnx

    model = onnx.load(path, load_external_data=False)
    return next((entry.value for entry in model.metadata_props if entry.key == KEY), None)


def _in_archive(path: Path) -> bytes | None:
    # This call reads only the record's entry, while torch.export.load would unpickle other entries.
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.filename.endswith(f"/extra/{KEY}.json"):
                if entry.file_size > MAX_BYTES:
                    raise FormatError(f"{path}: expected a record of at most {MAX_BYTES} bytes")
                with archive.open(entry) as file:  # the size in the archive's index may be wrong
                    return file.read(MAX_BYTES + 1)
    return None


def _in_safetensors(path: Path) -> str | None:
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        return (file.metadata() or {}).get(KEY)


def _in_python(path: Path) -> Record | None:
    """Read the constants ``OPERATOR_JSON`` and ``BINDING`` of a Python file as literals, without running the file."""
    constants: dict[str, Any] = {}
    for statement in ast.parse(read_bytes(path, _MAX_PYTHON_BYTES)).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if name in ("OPERATOR_JSON", "BINDING"):
                constants[name] = ast.literal_eval(statement.value)
    if len(constants) < 2:
        return None
    try:
        operator = read_json(msgspec.convert(constants["OPERATOR_JSON"], str))
        return record_of({"": (operator, msgspec.convert(constants["BINDING"], dict[str, int]))})
    except SynoError as error:
        raise FormatError(f"{path}: {error}") from None
