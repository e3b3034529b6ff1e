"""What comes from outside: numbers and names of any length, files of any kind; each reader answers in one line."""

import ast
import os
import random
import resource
import string
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reproduction.paper.facts import results_of

from syno_lab import errors, inputs, operators, private
from syno_lab.codegen.export_record import read_operator
from syno_lab.codegen.export_weights import load_weights, save_weights
from syno_lab.codegen.library import library_record
from syno_lab.commands.operands import load_operator, parse_binding
from syno_lab.commands.pgraphs.specs import load_spec
from syno_lab.common.size import Symbols
from syno_lab.data import cifar
from syno_lab.data.datasets import load_dataset
from syno_lab.data.image_folder import find_image_folder, read_image_folder
from syno_lab.data.text import load_text
from syno_lab.errors import SpecError, SynoError
from syno_lab.ir.spec import Spec, Variable
from syno_lab.models.placeholder import Placeholder
from syno_lab.nas_pte.operator import nas_pte_1
from syno_lab.sessions.session import session_of
from syno_lab.store.courses import read_course
from syno_lab.synthesis import record
from syno_lab.tuning.records import list_records

ROOT = Path(errors.__file__).parent
SYMBOLS = Symbols(("H", "W"), ("s", "k"))
LONGEST = 400
LIMITS = resource.getrlimit(resource.RLIMIT_AS)


def is_one_line(error: Exception | None) -> bool:
    return error is None or (str(error).isprintable() and 0 < len(str(error)) <= LONGEST)


def refusal_of(read: Callable[[Any], object], what: Any) -> SynoError | None:
    """What ``read`` says against ``what``; None where it takes it."""
    try:
        read(what)
    except SynoError as error:
        return error
    return None


# -- numbers -----------------------------------------------------------------------------------------------------------

ODD_NUMBERS = ["", "-1", "+1", "1_000", " 1", "٣", "²", "1e3", "0x10", "9" * 19, "9" * 5000]


@pytest.mark.parametrize("text", ODD_NUMBERS)
def test_an_integer_is_up_to_18_ascii_digits(text):
    assert inputs.integer(text) is None
    assert inputs.integer("9" * 18) == 10**18 - 1


@pytest.mark.parametrize(
    "parse",
    [
        lambda number: Variable.parse(f"H={number}"),
        lambda number: Variable.parse(f"H: {number}"),
        lambda number: SYMBOLS.size(f"H^{number}"),
        lambda number: SYMBOLS.size(f"H^-{number}"),
        lambda number: parse_binding([f"H={number}"]),
        lambda number: Spec.parse("[H, W]", "[H, W]", ["H", f"W={number}"]),
    ],
    ids=["default", "limit", "power", "negative power", "--bind", "spec"],
)
@pytest.mark.parametrize("digits", [19, 4301, 5000, 100_000])
def test_more_digits_are_refused_in_one_line(parse: Callable[[str], object], digits):
    with pytest.raises(SpecError) as refusal:
        parse("7" * digits)
    assert is_one_line(refusal.value)


@pytest.mark.parametrize("number", [np.int64(8), np.int32(8), np.uint8(8)])
def test_numpys_integers_are_integers_of_a_binding(number):
    spec = Spec.parse("[H, W]", "[H, W]", ["H", "W"], ["s=2"], mappings=[{"H": number, "W": number}])
    assert spec.bindings == ((("H", 8), ("W", 8), ("s", 2)),)
    operator = operators.conv2d()
    sizes = dict.fromkeys(operator.spec.symbols.primary, 8)
    theirs = dict.fromkeys(operator.spec.symbols.primary, number)
    for bound in (operator.complete_binding(theirs), operator.to_torch(theirs).binding, Placeholder(theirs).mapping):
        assert {type(value) for value in bound.values()} == {int}
        assert bound.items() >= sizes.items()
    assert operator.flops(theirs) == operator.flops(sizes)
    assert operator.fingerprint(theirs) == operator.fingerprint(sizes)
    assert nas_pte_1().flops(theirs) == nas_pte_1().flops(sizes)


@pytest.mark.parametrize(
    "number",
    [0, -1, True, 2.0, "4", None, 10**18, 10**5000, np.float64(4), np.bool_(True)],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_size_is_refused_at_every_door(number):
    for take in (
        operators.matmul().complete_binding,
        nas_pte_1().complete_binding,
        Placeholder,
    ):
        with pytest.raises(SpecError) as refusal:
            take(dict.fromkeys(("N", "K", "M", "C_in", "C_out", "H", "W"), number))
        assert is_one_line(refusal.value)


@pytest.mark.parametrize("text", ["H^64", "H^60*W^60*s^-64", "s^-1", "H*W", "H^2*W^2*s^-2"])
def test_a_size_that_no_machine_could_do_is_refused_in_one_line(text):
    with pytest.raises(SpecError, match=r"larger than 9223372036854775807|expected a positive integer") as refusal:
        SYMBOLS.size(text).at({"H": 10**17, "W": 10**16, "s": 10**15, "k": 3})
    assert is_one_line(refusal.value)


def test_a_size_up_to_the_bound_is_exact_and_numpys_do_not_overflow():
    assert SYMBOLS.size("H*s").at({"H": 2**60, "s": 4}) == 2**62
    assert SYMBOLS.size("H^4/W^3").at({"H": np.int64(2**30), "W": np.int64(2**30)}) == 2**30


def test_a_long_product_is_read_in_its_own_time_and_no_power_grows_without_end():
    assert SYMBOLS.size("*".join(["H", "s^-1"] * 60)) == SYMBOLS.size("H^60*s^-60")
    with pytest.raises(SpecError, match="expected powers of at most 64"):
        SYMBOLS.size("*".join(["H^64"] * 100_000))


# -- messages ----------------------------------------------------------------------------------------------------------

ODD = st.text(max_size=300) | st.text(string.digits + "HWsk^*/[], =:-", max_size=300) | st.sampled_from(["9" * 6000])


@given(ODD)
def test_texts_that_are_nothing_are_refused_in_one_printable_line(text):
    for parse in (
        Variable.parse,
        SYMBOLS.size,
        SYMBOLS.shape,
        lambda text: parse_binding([text]),
        lambda text: Spec.parse(text, "[H]", ["H"]),
        lambda text: Spec.parse("[H]", "[H]", [text]),
        lambda text: Symbols((text,)),
        operators.matmul().from_json,
        session_of,
        lambda text: operators.matmul().complete_binding({text: 3}),
    ):
        assert is_one_line(refusal_of(parse, text))


def test_an_error_moves_no_cursor_wherever_it_is_shown():
    said = str(SynoError("a\x1b[2J\x07\u202eb\n" + "c" * 5000 + "; do this"))
    assert said.endswith("; do this")
    assert said.startswith("a�[2J��b\n")
    assert len(said) == 480


def test_errors_quote_what_was_given_within_bounds():
    """``!r`` has no bound: what a message quotes goes through `quoted`."""
    family = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, SynoError)}
    found = []
    for file in sorted(ROOT.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "!r}" in text else ():
            call = node.exc if isinstance(node, ast.Raise) else None
            if isinstance(call, ast.Call) and getattr(call.func, "id", None) in family:
                parts = (part for part in ast.walk(call) if isinstance(part, ast.FormattedValue))
                asked = [ast.unparse(part.value) for part in parts if part.conversion == ord("r")]
                # A constant of ours is as long as we have made it.
                found += [f"{file.relative_to(ROOT)}:{node.lineno}: {one}" for one in asked if not one.isupper()]
    assert found == []


# -- files -------------------------------------------------------------------------------------------------------------

HUGE = 3 << 30  # bytes, sparse


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE)


def _folder(path: Path) -> None:
    path.mkdir()


def _missing(path: Path) -> None:
    pass


def _circle(path: Path) -> None:
    path.symlink_to(path)


KINDS = [_fifo, _device, _sparse, _folder, _missing, _circle]


def _image(path: Path) -> object:
    """Eight images, one of which is not one."""
    from PIL import Image

    for number in range(7):
        Image.new("RGB", (4, 4)).save(path.parent / f"{number}.png")
    return read_image_folder(find_image_folder(path.parents[1]), size=4)


def _library(path: Path) -> object:
    path.with_name(f"{path.name}.json").write_text("{}")
    return library_record(path)


READERS = {
    "operator file": ("a.json", lambda path: load_operator(str(path))),
    "spec": ("a.json", lambda path: load_spec(str(path))),
    "search record": ("a.json", record.read),
    "CIFAR, binary": ("cifar-10-batches-bin/data_batch_1.bin", lambda path: load_dataset(path.parent)),
    "CIFAR, pickled": ("cifar-10-batches-py/data_batch_1", lambda path: load_dataset(path.parent)),
    "data folder": ("cifar", load_dataset),
    "image": ("of/class/7.png", _image),
    "text": ("a.txt", load_text),
    "results": ("a.json", results_of),
    "ONNX": ("a.onnx", read_operator),
    ".pt2": ("a.pt2", read_operator),
    "safetensors": ("a.safetensors", read_operator),
    "weights": ("a.safetensors", lambda path: load_weights(operators.matmul(), path)),
    "Python": ("a.py", read_operator),
    "library": ("a.so", _library),
    "library's description": ("a.so.json", lambda path: library_record(path.with_suffix(""))),
    "tuning record": ("a.jsonl", lambda path: list_records(path.parent)),
}
#: What is passed over rather than refused.
NOTHING = {"tuning record": (_circle,)}


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__[1:])
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_refuses_what_is_no_file_in_one_line(reader, make, tmp_path, monkeypatch):
    """A FIFO and a device are not waited for, 3 GiB are not read."""
    monkeypatch.chdir(tmp_path)
    name, read = READERS[reader]
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    make(path)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + (1 << 30), LIMITS[1]))
    try:
        refusal = refusal_of(read, path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, LIMITS)
    assert is_one_line(refusal)
    assert refusal is not None or make in (_missing, *NOTHING.get(reader, ()))


@pytest.mark.parametrize("make", [_fifo, _device, _sparse, _folder, _circle], ids=lambda make: make.__name__[1:])
def test_what_is_read_and_checked_is_a_regular_file(make, tmp_path):
    make(tmp_path / "a")
    for look in (inputs.read_bytes, inputs.read_text, inputs.read_json, inputs.check_regular):
        with pytest.raises(OSError, match=r"expected (a regular file|at most 1048576 bytes), found|symbolic links"):
            look(tmp_path / "a", 1 << 20)
    assert inputs.is_file(tmp_path / "a") == (make is _sparse)
    assert read_course(tmp_path / "a") is None


def test_names_that_can_be_none_are_no_files():
    for name in ("a" * 5000, "a/" * 5000, "a\0b", "\udcff"):
        assert not inputs.is_file(name)
        for read in (load_operator, load_dataset, load_text, lambda name: load_spec(str(name))):
            with pytest.raises(SynoError) as refusal:
                read(name)
            assert "\n" not in str(refusal.value)


def test_a_file_of_the_kernel_tells_no_size_and_is_read_within_bounds():
    assert inputs.read_bytes("/proc/self/stat", 1 << 16).startswith(str(os.getpid()).encode())
    with pytest.raises(OSError, match="expected at most 3 bytes, found more"):
        inputs.read_bytes("/proc/self/stat", 3)


def test_nobody_reads_a_fifo_that_is_written_to(tmp_path):
    os.mkfifo(tmp_path / "a")
    with pytest.raises(OSError, match="No such device"):
        private.create(tmp_path / "a", "ab")


def test_text_for_a_terminal_keeps_its_lines():
    assert inputs.printable_lines("a\tb\r\nc\x1b[0m\r50 %\n") == "a\tb\nc�[0m\n50 %\n"


# -- files that are damaged --------------------------------------------------------------------------------------------


def _pickle_of(opcodes: bytes) -> Callable[[Path], object]:
    def write(folder: Path) -> object:
        place = folder / "cifar-10-batches-py"
        place.mkdir()
        for name in [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]:
            (place / name).write_bytes(b"\x80\x02" + opcodes + b".")
        return load_dataset(place)

    return write


@pytest.mark.parametrize(
    "opcodes",
    [
        b"}" + b")" + b"\x85" * 9_000 + b"K\x01s",  # a key of tuples in tuples: hash() would overflow the stack
        b"(" + b"]" * 20_000 + b"l",
        b"c" + b"x" * 5000 + b"\ny\n",
    ],
    ids=["deep", "many", "long"],
)
def test_a_pickle_of_images_is_small_and_flat(opcodes, tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "_MOST_OPCODES", 10_000)
    with pytest.raises(SynoError, match="no code was run") as refusal:
        _pickle_of(opcodes)(tmp_path)
    assert is_one_line(refusal.value)


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> bytes:
    """A ``.pt2`` as torch writes it, as far as we read it: the record among other entries."""
    path = tmp_path_factory.mktemp("pt2") / "a.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/data/weights", bytes(range(256)) * 4)
        file.writestr("a/extra/syno_lab.json", _record_text())
    return path.read_bytes()


def _record_text() -> str:
    from syno_lab.codegen.export_record import record_of

    operator = operators.matmul()
    return record_of({"": (operator, dict.fromkeys(operator.spec.symbols.primary, 4))}).to_json()


def test_mutated_exports_answer_in_one_line(archive, tmp_path):
    save_weights(operators.matmul().to_torch(dict.fromkeys(("M", "K", "N"), 4)), tmp_path / "w.safetensors")
    weights = (tmp_path / "w.safetensors").read_bytes()
    draw = random.Random(0)
    for whole, path in ((archive, tmp_path / "m.pt2"), (weights, tmp_path / "m.safetensors")):
        for _ in range(150):
            content = bytearray(whole)
            for _ in range(draw.randint(1, 4)):
                content[draw.randrange(len(content))] = draw.randrange(256)
            path.write_bytes(content[: draw.choice([len(content), draw.randrange(len(content))])])
            for read in (read_operator, lambda path: load_weights(operators.matmul(), path)):
                assert "\n" not in str(refusal_of(read, path))


def test_weights_of_a_binding_that_fills_the_memory_are_refused_before_any_are_made(tmp_path):
    path = tmp_path / "w.safetensors"
    save_weights(operators.matmul().to_torch(dict.fromkeys(("M", "K", "N"), 4)), path)
    large = path.read_bytes().replace(b'\\"K\\":4', b'\\"K\\":9')
    large = large.replace(b'\\"N\\":4', b'\\"N\\":9')
    assert large != path.read_bytes()
    size = int.from_bytes(large[:8], "little")
    header = large[8 : 8 + size].replace(b":9", b":999999999")
    path.write_bytes(len(header).to_bytes(8, "little") + header + large[8 + size :])
    with pytest.raises(SynoError, match="found a file of"):
        load_weights(operators.matmul(), path)
