"""Compiled libraries: written, loaded back in another process, compared with the loop nest, and refused."""

from __future__ import annotations

import io
import json
import platform
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import syno_lab as sl
from syno_lab.codegen.library import check_library, library_record, load_library, save_library, sidecar
from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.operators import conv2d, operator_1

BINDING = {"N": 2, "C_in": 8, "C_out": 8, "H": 6, "W": 4}
#: Where a header of ELF holds the machine, and the numbers of two.
ELF_MACHINE = {"x86_64": 0x3E, "aarch64": 0xB7}

CALL = """
import sys
import numpy as np
import syno_lab as sl
from syno_lab.codegen.library import load_library
from syno_lab.errors import SynoError
library = load_library(sys.argv[1])
x = np.ones((2, 8, 6, 4), "float64")
w = np.ones((8, 3, 3, 8), "float64")
print(float(library(x, w)[0, 0, 2, 2]))
for bad in ((x,), (x, w[:4]), (x.astype("float32"), w)):
    try:
        library(*bad)
    except SynoError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """conv2d for this processor, in float64."""
    path = tmp_path_factory.mktemp("library") / "conv.so"
    record = sl.operators.conv2d().save_library(path, BINDING, dtype="float64")
    assert record == library_record(path)
    assert (record.kind, record.machine, record.tuned, record.device_code) == ("llvm", platform.machine(), False, None)
    assert record.binding == {**BINDING, "k_1": 3}
    assert sorted(one.name for one in path.parent.iterdir()) == ["conv.so", "conv.so.json"]
    return path


# -- right ones ------------------------------------------------------------------------------------------------------


@pytest.mark.tvm
def test_a_linked_library_computes_the_loop_nest(saved: Path) -> None:
    assert check_library(saved) < 1e-12


@pytest.mark.tvm
def test_a_library_is_called_with_arrays_of_its_shapes(saved: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CALL, str(saved)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    value, *refused = done.stdout.splitlines()
    assert float(value) == 8 * 9
    wanted = "expected arrays of shapes [2, 8, 6, 4], [8, 3, 3, 8] float64, found "
    assert refused == [
        wanted + "[2, 8, 6, 4] float64",
        wanted + "[2, 8, 6, 4] float64, [4, 3, 3, 8] float64",
        wanted + "[2, 8, 6, 4] float32, [8, 3, 3, 8] float64",
    ]


@pytest.mark.tvm
def test_objects_are_linked_where_they_are_loaded(tmp_path: Path) -> None:
    path = tmp_path / "one.tar"
    save_library(operator_1(), path, BINDING)
    assert check_library(path) < 1e-5
    assert sorted(one.name for one in tmp_path.iterdir()) == ["one.tar", "one.tar.json"]


@pytest.mark.tvm
@pytest.mark.parametrize(
    ("target", "kind", "code"), [("jetson-orin-nano-cpu", "llvm", None), ("jetson-orin-nano", "cuda", "source")]
)
def test_a_library_for_a_jetson_holds_code_of_its_processor(
    target: str, kind: str, code: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "conv.tar"
    record = save_library(conv2d(), path, BINDING, target=target)
    assert (record.kind, record.machine, record.device_code) == (kind, "aarch64", code)
    objects = []
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            objects.append(file.read() if file is not None else b"")
    host = [data for data in objects if data[:4] == b"\x7fELF"]
    assert host
    assert {io.BytesIO(data[18:20]).read()[0] for data in host} == {ELF_MACHINE["aarch64"]}
    # The GPU's part is CUDA, which the board's own TVM compiles.
    assert any(b"__global__" in data for data in objects) == (kind == "cuda")
    if platform.machine() != "aarch64":
        with pytest.raises(SynoError, match=r"conv\.tar: expected one for this machine .* found one for aarch64"):
            load_library(path)


# -- wrong ones ------------------------------------------------------------------------------------------------------


@pytest.mark.tvm
def test_a_library_of_something_else_is_refused(saved: Path) -> None:
    with pytest.raises(FormatError, match=r"conv\.so: expected the operator .* found that of"):
        load_library(saved, operator=operator_1())
    with pytest.raises(FormatError, match=r"expected the binding .*'H': 7.* found .*'H': 6"):
        load_library(saved, binding=BINDING | {"H": 7})
    with pytest.raises(FormatError, match="expected float32, found float64"):
        load_library(saved, operator=conv2d(), binding=BINDING, dtype="float32")


@pytest.mark.tvm
def test_a_library_that_is_not_the_one_described_is_refused(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "conv.so"
    path.write_bytes(saved.read_bytes())
    with pytest.raises(FormatError, match=r"expected the files conv\.so and conv\.so\.json, found no .*conv\.so\.json"):
        load_library(path)
    described = json.loads(sidecar(saved).read_text())
    sidecar(path).write_text(json.dumps(described | {"version": 2}))
    with pytest.raises(FormatError, match=r"library conv\.so: expected version 1, found 2"):
        load_library(path)
    sidecar(path).write_text(json.dumps({**described, "dtype": 3}))
    with pytest.raises(FormatError, match=r"library conv\.so: expected JSON of syno-lab-library version 1"):
        load_library(path)
    sidecar(path).write_text(json.dumps(described | {"sha256": "\nmkdir x\x1b[2J"}))
    with pytest.raises(FormatError, match=r"^library conv\.so: .*\(sha256 '\\nmkdir x\\x1b\[2J'…\), found another"):
        load_library(path)
    sidecar(path).write_bytes(sidecar(saved).read_bytes())
    path.write_bytes(saved.read_bytes() + b"x")
    with pytest.raises(FormatError, match=r"expected the file that conv\.so\.json describes .* found another"):
        load_library(path)


def test_refusals_before_anything_is_compiled(tmp_path: Path) -> None:
    with pytest.raises(SynoError, match=r"expected the path of a library to end in \.so or \.tar, found 'conv\.o'"):
        save_library(conv2d(), tmp_path / "conv.o", BINDING)
    with pytest.raises(SynoError, match="expected a folder for the library, found none at"):
        save_library(conv2d(), tmp_path / "no" / "conv.so", BINDING)
    with pytest.raises(SpecError, match="C_in"):
        save_library(conv2d(), tmp_path / "conv.so", {"N": 1})
    with pytest.raises(SpecError):
        save_library(operator_1(), tmp_path / "one.so", BINDING | {"C_in": 6})  # g = 4 does not divide it
    assert not list(tmp_path.iterdir())


@pytest.mark.tvm
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "vulkan"}, r"of a kind that this TVM .* was built for, .*cuda.*llvm.* found 'vulkan'"),
        ({"target": "no-such"}, "expected a target among local, .*jetson-orin-nano.* found 'no-such'"),
        ({"records": "nowhere"}, "nowhere"),
        ({"dtype": "int8"}, "expected dtype to be one of float16, float32, float64, found 'int8'"),
    ],
)
def test_refusals_of_the_compiler(options: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(SynoError, match=message):
        save_library(conv2d(), tmp_path / "conv.so", BINDING, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.tvm
def test_a_linker_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no cross compiler here
    other = "riscv64" if platform.machine() != "riscv64" else "aarch64"
    target = json.dumps({"kind": "llvm", "mtriple": f"{other}-linux-gnu"})
    with pytest.raises(SynoError, match=f"expected {other}-linux-gnu-g.. on the PATH .* save it as a .tar"):
        save_library(conv2d(), tmp_path / "conv.so", BINDING, target=target)
