"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009) in the four forms in which they are published.

Source of the forms: https://www.cs.toronto.edu/~kriz/cifar.html. Shapes: N images, C = 3 channels, H = W = 32. A file
may have any number of complete records, so shortened files can be read too.

The "python" forms are pickles. The reader runs no code that the file refers to: see :func:`_unpickle`.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syno_lab.errors import DataError
from syno_lab.inputs import QUOTED, printable, read_bytes

PIXELS = 3 * 32 * 32
"""Number of bytes of one image: its red, green and blue planes, row by row."""

MOST_BYTES = 1 << 28
"""The largest size of a file in bytes; the largest published file has 155 million."""

_CIFAR_10 = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR_100 = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
    caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
    flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
    motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
    poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
    squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
    wardrobe whale willow_tree wolf woman worm
"""
_CLASSES = {"cifar-10": tuple(_CIFAR_10.split()), "cifar-100": tuple(_CIFAR_100.split())}


class _Labels(NamedTuple):
    """A kind of label in a record, such as coarse labels: its key in the python form, and the number of its values."""

    key: str
    kinds: int


_LABELS = {
    "cifar-10": (_Labels("labels", 10),),
    "cifar-100": (_Labels("coarse_labels", 20), _Labels("fine_labels", 100)),
}


@dataclass(frozen=True)
class CifarFormat:
    """A form in which one of the two data sets is published.

    The file with the class names may be missing, because the names are known. The file is ``names_file``; in the python
    form, ``names_key`` is the key of the names.
    """

    name: str
    folder: str
    md5: str
    train_files: tuple[str, ...]
    test_file: str
    names_file: str
    names_key: str = ""

    @property
    def binary(self) -> bool:
        """Whether the files hold records of bytes, not pickles."""
        return not self.names_key

    @property
    def archive(self) -> str:
        """The name of the published archive."""
        return f"{self.name}-{'binary' if self.binary else 'python'}.tar.gz"

    @property
    def labels(self) -> tuple[_Labels, ...]:
        """The kinds of labels in the order of a binary record's label bytes; networks learn the last kind."""
        return _LABELS[self.name]

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return _CLASSES[self.name]


CIFAR_FORMATS = (
    CifarFormat("cifar-10", "cifar-10-batches-bin", "c32a1d4ab5d03f1284b67883e8d87530",
                tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin", "batches.meta.txt"),
    CifarFormat("cifar-10", "cifar-10-batches-py", "c58f30108f718f92721af3b95e74349a",
                tuple(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta", "label_names"),
    CifarFormat("cifar-100", "cifar-100-binary", "03b5dce01913d631647c71ecec9e9cb8",
                ("train.bin",), "test.bin", "fine_label_names.txt"),
    CifarFormat("cifar-100", "cifar-100-python", "eb9058c3a382ffc7106e4002c42a8d85",
                ("train",), "test", "meta", "fine_label_names"),
)  # fmt: skip
"""The published forms; where a folder holds several, the first of them here is read."""


class CifarArrays(NamedTuple):
    """The contents of a folder: images uint8 [N, 3, 32, 32], labels int64 [N], and the class name of each label."""

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]
    classes: tuple[str, ...]


def find_cifar(path: Path) -> tuple[Path, CifarFormat]:
    """Find CIFAR in ``path``: a folder of one form, with any name, or a parent folder of such folders.

    Where a parent holds several forms, the first in :data:`CIFAR_FORMATS` is used: CIFAR-10 before CIFAR-100, binary
    before python. Raises DataError if the folder does not exist or does not contain CIFAR.
    """
    if not path.exists():
        raise DataError(f"expected a data folder at {path}, found nothing there; check the path, or ask for a download")
    if not path.is_dir():
        raise DataError(f"expected a data folder at {path}, found a file; name the folder that holds the data files")
    for form in CIFAR_FORMATS:
        if path.name == form.folder:
            return path, form
    for form in CIFAR_FORMATS:
        if (path / form.train_files[0]).is_file() and (path / form.test_file).is_file():
            return path, form
    for form in CIFAR_FORMATS:
        if (path / form.folder).is_dir():
            return path / form.folder, form
    names = sorted(printable(entry.name, 40) for entry in path.iterdir())
    actual = "an empty folder" if not names else ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    expected = ", ".join(form.folder for form in CIFAR_FORMATS)
    raise DataError(
        f"expected one of {expected}, or class folders of images, or train and val with class folders in each, in "
        f"{path}, found {actual}; name a folder that holds one of them"
    )


def read_cifar(folder: Path, form: CifarFormat, *, has_test: bool = True) -> CifarArrays:
    """Read all files of ``form`` in ``folder``; raise DataError with the name of the first missing or corrupt file.

    Without ``has_test`` the test images are not read, and their arrays are empty.
    """
    read = _read_binary if form.binary else _read_python
    parts = [read(folder / name, form) for name in form.train_files]
    images, labels = parts[0]
    test_images, test_labels = read(folder / form.test_file, form) if has_test else (images[:0], labels[:0])
    return CifarArrays(
        np.concatenate([images for images, _ in parts]),
        np.concatenate([labels for _, labels in parts]),
        test_images,
        test_labels,
        _read_classes(folder / form.names_file, form),
    )


def _read_bytes(path: Path, form: CifarFormat) -> bytes:
    try:
        return read_bytes(path, MOST_BYTES)
    except FileNotFoundError:
        needed = ", ".join((*form.train_files, form.test_file))
        raise DataError(
            f"expected {path}, found no such file; a {form.folder} folder holds {needed}: unpack the archive again"
        ) from None
    except OSError as error:
        raise DataError(f"expected a readable file {path}, found: {error.strerror or error}") from None


def _read_binary(path: Path, form: CifarFormat) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    raw = np.frombuffer(_read_bytes(path, form), dtype=np.uint8)
    width = len(form.labels)
    record = width + PIXELS
    count, remainder = divmod(raw.size, record)
    if remainder or not count:
        raise DataError(
            f"{path}: expected a whole number of records of {record:,} bytes (at least one), found {raw.size:,} bytes, "
            f"which is {count} records and {remainder} bytes; the file is damaged or cut off: get it again"
        )
    table = raw.reshape(count, record)
    for column, kind in enumerate(form.labels):
        _check_labels(path, table[:, column].astype(np.int64), kind)
    images = table[:, width:].reshape(count, 3, 32, 32)
    return np.ascontiguousarray(images), table[:, width - 1].astype(np.int64)


def _read_python(path: Path, form: CifarFormat) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    content = _unpickle(path, _read_bytes(path, form))
    data = _entry(path, content, "data")
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != PIXELS or not len(data):
        actual = f"an array {list(data.shape)}" if isinstance(data, np.ndarray) else f"a {type(data).__name__}"
        raise DataError(f"{path}: expected 'data' as a uint8 array [N, {PIXELS}] with N > 0, found {actual}")
    labels = np.empty(0, dtype=np.int64)
    for kind in form.labels:
        values = _entry(path, content, kind.key)
        if not isinstance(values, list) or not all(type(value) is int for value in values):
            raise DataError(f"{path}: expected '{kind.key}' as a list of integers, found {_short(values)}")
        if len(values) != len(data):
            raise DataError(f"{path}: expected one of '{kind.key}' for each of {len(data)} images, found {len(values)}")
        if max(map(abs, values)) >= 2**31:
            raise DataError(f"{path}: expected '{kind.key}' from 0 to {kind.kinds - 1}, found {max(values, key=abs)}")
        labels = np.array(values, dtype=np.int64)
        _check_labels(path, labels, kind)
    return data.reshape(-1, 3, 32, 32), labels


def _check_labels(path: Path, labels: NDArray[np.int64], kind: _Labels) -> None:
    wrong = np.flatnonzero((labels < 0) | (labels >= kind.kinds))
    if wrong.size:
        first = int(wrong[0])
        raise DataError(
            f"{path}: expected '{kind.key}' from 0 to {kind.kinds - 1}, found {labels[first]} in record {first}; "
            "the file is damaged or of another form: get it again"
        )


def _read_classes(path: Path, form: CifarFormat) -> tuple[str, ...]:
    if not path.exists():
        return form.classes
    raw = _read_bytes(path, form)
    if form.binary:
        # The published file of CIFAR-10 ends with empty lines.
        names: Any = [line for line in raw.decode("utf-8", "replace").splitlines() if line.strip()]
    else:
        names = _entry(path, _unpickle(path, raw), form.names_key)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{path}: expected {len(form.classes)} class names, found {_short(names)}")
    if len(names) != len(form.classes):
        raise DataError(f"{path}: expected {len(form.classes)} class names, found {len(names)}")
    return tuple(names)


def _entry(path: Path, content: object, key: str) -> Any:
    if not isinstance(content, dict) or key not in content:
        actual = (
            "the keys " + _short(sorted(key for key in content if isinstance(key, str)))
            if isinstance(content, dict)
            else _short(content)
        )
        raise DataError(f"{path}: expected a dictionary with the key '{key}', found {actual}")
    return content[key]


def _short(value: object) -> str:
    return reprlib.repr(value)  # reprlib shortens the text of deeply nested lists too


_MOST_OPCODES, _MOST_TUPLES = 2_000_000, 1_000

# The opcodes of a pickle of dictionaries, lists, tuples, strings, integers, None, booleans and arrays.
_OPCODES = """
    PROTO FRAME STOP MARK GLOBAL STACK_GLOBAL REDUCE BUILD NONE NEWTRUE NEWFALSE INT LONG LONG1 BININT BININT1 BININT2
    STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINBYTES SHORT_BINBYTES DICT EMPTY_DICT SETITEM
    SETITEMS LIST EMPTY_LIST APPEND APPENDS TUPLE EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3 PUT BINPUT LONG_BINPUT MEMOIZE GET
    BINGET LONG_BINGET
"""

# The exceptions that a damaged pickle can cause in the unpickler or in the stand-in classes below.
_PICKLE_ERRORS = (
    pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


def _unpickle(path: Path, raw: bytes) -> Any:
    """Read a pickle of dictionaries, lists, strings, numbers and uint8 arrays; refuse any other content.

    Raises DataError for a file with other content. No code of the file runs.
    """
    try:
        _check_opcodes(raw)
        return _load(raw)
    except _PICKLE_ERRORS as error:
        detail = printable(" ".join(str(error).split()), 2 * QUOTED) or type(error).__name__
        raise DataError(
            f"{path}: expected a pickle of a dictionary of lists and uint8 arrays, found {detail}; "
            "no code was run: get the file again from its publisher"
        ) from None


def _check_opcodes(raw: bytes) -> None:
    """Check a pickle's opcodes without running it.

    Raises UnpicklingError for an opcode that image data do not need, and for a pickle that would need too much memory.
    """
    allowed = set(_OPCODES.split())
    tuples = 0
    for number, (opcode, argument, position) in enumerate(pickletools.genops(raw)):
        # An opcode of one byte can allocate an object of sixty bytes. Deeply nested tuples crash hash().
        tuples += "TUPLE" in opcode.name
        if number > _MOST_OPCODES or tuples > _MOST_TUPLES:
            raise pickle.UnpicklingError(f"more than {_MOST_OPCODES} parts or {_MOST_TUPLES} tuples")
        # The argument of a PUT is the number of entries that the unpickler allocates, which can be gigabytes.
        large = "PUT" in opcode.name and isinstance(argument, int) and argument > len(raw)
        if opcode.name not in allowed or large:
            raise pickle.UnpicklingError(f"{opcode.name} {printable(str(argument or ''), QUOTED)} at byte {position}")


def _load(raw: bytes) -> Any:
    """Load a pickle whose opcodes were checked; the pickle may refer only to the names in ``admitted``.

    No function of NumPy is called while the file is read: a crafted dtype can make ``ndarray.__setstate__`` take plain
    bytes for object pointers. Stand-in classes replace NumPy's names in an array's pickle; arrays are made later. Each
    file gets new stand-in classes, because a pickle may set attributes of any object that it loads.
    """

    class Kind:
        """A stand-in for ``numpy.dtype``, called with ("u1", False, True); its pickled state is not needed."""

        def __init__(self, code: object, *_flags: object) -> None:
            self.code = code

        def __setstate__(self, _state: object) -> None:
            pass

    class Array:
        """A stand-in for ``numpy.ndarray``; its pickled state is (1, shape, dtype, column-major, bytes)."""

        def __setstate__(self, state: tuple[Any, ...]) -> None:
            self.shape, self.kind, self.column_major, self.raw = state[-4:]

        def array(self) -> NDArray[np.uint8]:
            if not isinstance(self.kind, Kind) or self.kind.code not in ("u1", "|u1", "uint8") or self.column_major:
                raise ValueError("an array of another type than uint8 in row-major order")
            pixels = self.raw.encode("latin1") if isinstance(self.raw, str) else bytes(self.raw)
            # Copy the array, because an array on a bytes object is read-only.
            return np.frombuffer(pixels, dtype=np.uint8).reshape(self.shape).copy()

    def reconstruct(_cls: object, _shape: object, _code: object) -> Array:
        return Array()

    def encode(text: str, encoding: str = "latin1") -> bytes:
        if encoding != "latin1":
            raise ValueError(f"bytes in the encoding {encoding!r}")
        return text.encode("latin1")

    admitted: dict[tuple[str, str], Callable[..., Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): reconstruct,
        ("numpy", "ndarray"): Array,
        ("numpy", "dtype"): Kind,
        ("_codecs", "encode"): encode,  # Python 3's name for bytes in protocol 2
    }

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if (module, name) not in admitted:
                raise pickle.UnpicklingError(f"the name {module}.{name}, which image data does not need")
            return admitted[module, name]

    content = Reader(io.BytesIO(raw), encoding="latin1").load()
    if not isinstance(content, dict):
        return content
    return {
        key.decode("latin1") if isinstance(key, bytes) else key: value.array() if isinstance(value, Array) else value
        for key, value in content.items()
    }
