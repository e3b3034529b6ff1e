"""Exported files: read by other programs than the lab, they give the numbers of the loop nest."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import save_file
from strategies import random_arrays, random_operator, repro
from torch import nn

import syno_lab as sl
from syno_lab.codegen import export as exports
from syno_lab.codegen.export_check import batch_variables, compare, filled, runs_reference
from syno_lab.codegen.export_program import traced
from syno_lab.codegen.export_record import KEY, identity, read_record, record_of
from syno_lab.codegen.reference import reference
from syno_lab.codegen.torch_module import to_torch
from syno_lab.errors import ExportError, FormatError, SpecError
from syno_lab.ir.operator import Operator

CONV = {"N": 1, "C_in": 4, "C_out": 6, "H": 5, "W": 3, "k_1": 3}
POINTWISE = {name: number for name, number in CONV.items() if name != "k_1"}
Case = tuple[Operator, dict[str, int]]


def small_case(name: str) -> Case:
    operator = sl.operators.KNOWN[name]()
    values = {"N": 2, "H": 6, "W": 4, "M": 3, "K": 6, "L": 6, "T": 5}
    return operator, {
        v: values.get(v, operator.spec.defaults.get(v, 16 if v.startswith("C") else 4))
        for v in operator.spec.symbols.names
    }


def with_weights(operator: Operator, binding: dict[str, int], weights: list[np.ndarray]) -> nn.Module:
    module = to_torch(operator, binding)
    with torch.no_grad():
        for number, weight in enumerate(weights, 1):
            getattr(module, f"weight_{number}").copy_(torch.from_numpy(weight))
    return module


def run_onnx(path: Path, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def run_pt2(path: Path, x: np.ndarray) -> np.ndarray:
    return torch.export.load(path).module()(torch.from_numpy(x)).detach().numpy()


RUN = {".onnx": run_onnx, ".pt2": run_pt2}


def check_program(operator: Operator, binding: dict[str, int], path: Path, why: str = "") -> None:
    """Export, read with the other program, compare at every size of the batch with the loop nest."""
    free = batch_variables(operator)
    _, weights = random_arrays(operator, binding, 1, np.float32)
    done = exports.export(operator, path, binding, module=with_weights(operator, binding, weights))
    assert done.bytes == path.stat().st_size
    assert done.compared_with == "loop nest"
    for batch in (1, 2, 5) if free else (None,):
        sizes = binding | dict.fromkeys(free, batch)
        x, _ = random_arrays(operator, sizes, 2, np.float32)
        wanted = reference(operator, x, *weights, binding=sizes)
        found = RUN[path.suffix](path, x)
        assert found.shape == wanted.shape, why
        atol = 1e-4 * float(np.abs(wanted).max(initial=1.0))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=atol, err_msg=why)
    assert exports.read_operator(path) == (operator, binding), why


# -- programs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "suffix"),
    [(name, ".pt2") for name in ("conv2d", "operator_1", "half_step_shift", "pixel_shuffle", "sum_pool")]
    + [(name, ".onnx") for name in ("conv2d", "operator_1", "half_step_shift", "sum_pool")],  # seconds each
)
def test_programs_of_known_operators(name: str, suffix: str, tmp_path: Path) -> None:
    check_program(*small_case(name), tmp_path / f"{name}{suffix}")


@pytest.mark.parametrize("suffix", sorted(RUN))
@pytest.mark.parametrize("offset", range(2))
def test_programs_of_random_operators(offset: int, suffix: str, tmp_path: Path, rng: random.Random) -> None:
    for _ in range(offset):
        random_operator(rng)
    operator, binding = random_operator(rng, batch=offset != 1)
    check_program(operator, binding, tmp_path / f"random{suffix}", repro(operator, binding))


def test_a_contraction_of_three_keeps_the_batch_free() -> None:
    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(4, 5)), nn.Parameter(torch.randn(5, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.einsum("nc,cd,de->en", x, self.a, self.b)

    module = Chain()
    program = traced(module, torch.zeros(3, 4), (0,)).module()
    for batch in (1, 3, 7):
        x = torch.randn(batch, 4)
        torch.testing.assert_close(program(x), (x @ module.a @ module.b).T)


def test_other_dtypes(tmp_path: Path) -> None:
    operator, binding = small_case("conv1d")
    double = to_torch(operator, binding).double()
    done = exports.export(operator, tmp_path / "a.onnx", binding, module=double)
    assert done.difference < 1e-12 * done.largest
    half = to_torch(operator, binding).bfloat16()
    assert exports.export(operator, tmp_path / "a.pt2", binding, module=half).difference > 0
    x = torch.randn(operator.input_sizes(binding)).bfloat16()
    assert torch.equal(torch.export.load(tmp_path / "a.pt2").module()(x), half(x))


def test_what_differs_when_read_back_is_not_written(tmp_path: Path) -> None:
    operator, binding = small_case("conv1d")
    doubled = to_torch(operator, binding, scale=2.0)
    with pytest.raises(ExportError, match=r"expected the numbers of the loop nest within .*, found a difference of"):
        exports.export(operator, tmp_path / "a.pt2", binding, module=doubled)
    assert list(tmp_path.iterdir()) == []
    exports.export(operator, tmp_path / "a.pt2", binding, module=doubled, scale=2.0)
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt2"]


def test_long_loop_nests_give_way_to_the_module(tmp_path: Path) -> None:
    binding = {"N": 64, "C_in": 64, "C_out": 64, "H": 32, "W": 32, "k_1": 3}
    operator = sl.operators.conv2d()
    assert not runs_reference(operator, binding | {"N": 2})
    assert exports.export(operator, tmp_path / "a.pt2", binding).compared_with == "torch module"


def test_compare_refuses_shapes_and_what_is_not_a_number() -> None:
    zeros = np.zeros((2, 3))
    assert compare(zeros + 1e-9, zeros, 1e-7, "file", "loop nest") == 1e-9
    assert compare(zeros[:0], zeros[:0], 1e-7, "file", "loop nest") == 0
    with pytest.raises(ExportError, match=r"file: read back, expected an output of shape \(2, 3\), found \(3, 2\)"):
        compare(zeros.T, zeros, 1e-7, "file", "loop nest")
    with pytest.raises(ExportError, match="found a difference of nan"):
        compare(zeros * np.nan, zeros, 1e-7, "file", "loop nest")


def test_the_batch_is_what_nothing_else_has() -> None:
    assert batch_variables(sl.operators.conv2d()) == {"N"}
    assert batch_variables(sl.operators.KNOWN["unfold"]()) <= {"N"}
    spec = sl.Spec.parse("[H, H]", "[H, H]", ["H"], [], fixed_io_pairs=[(0, 0)])
    same = next(sl.State.root(spec).matches())
    assert batch_variables(Operator(sl.State.root(spec), same)) == set(), "H is also an axis of the operator's own"


# -- Python files ------------------------------------------------------------------------------------------------------


def test_python_files_of_known_and_random_operators_stand_alone(tmp_path: Path, rng: random.Random) -> None:
    """All of them in one fresh interpreter that cannot import Syno Lab, NumPy for the numbers aside."""
    cases: dict[str, Case] = {name: small_case(name) for name in sl.operators.KNOWN}
    cases |= {f"random_{i}": random_operator(rng) for i in range(8)}
    for name, (operator, binding) in cases.items():
        path = tmp_path / f"{name}.py"
        path.write_text(exports.standalone_source(operator, binding))
        assert exports.read_operator(path) == (operator, binding)
        x, weights = random_arrays(operator, binding, 3)
        y = reference(operator, x, *weights, binding=binding)
        np.savez(tmp_path / f"{name}.npz", x, y, *weights)
    program = """
import pathlib, runpy, sys
sys.modules["syno_lab"] = None
import numpy, torch
for path in sorted(pathlib.Path().glob("*.py")):
    made = runpy.run_path(str(path), run_name="__main__")  # its own check
    x, y, *weights = (torch.from_numpy(numpy.asarray(a)) for a in numpy.load(path.with_suffix(".npz")).values())
    module = made["SynoOperator"]().double()
    for number, weight in enumerate(weights, 1):
        getattr(module, f"weight_{number}").data.copy_(weight)
    torch.testing.assert_close(module(x).detach(), y, rtol=1e-9, atol=1e-9, msg=lambda m: f"{path}: {m}")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr + "".join(
        repro(*case) for name, case in cases.items() if name in done.stderr
    )
    assert done.stdout.count("agrees with the operator") == len(cases)


def test_a_python_file_s_own_check_finds_another_module(tmp_path: Path) -> None:
    operator, binding = small_case("conv2d")
    cut = "\n\n# The operator itself"
    (right, numbers), (wrong, _) = (
        exports.standalone_source(operator, binding, scale=scale).split(cut) for scale in (1.0, 1.0001)
    )
    for name, text in {"right": right, "wrong": wrong}.items():
        namespace: dict[str, object] = {"__name__": name}
        exec(text + cut + numbers, namespace)
        if name == "right":
            namespace["self_check"]()
        else:
            with pytest.raises(AssertionError, match=r"expected .* found"):
                namespace["self_check"]()


def test_a_python_file_says_what_it_is(tmp_path: Path) -> None:
    done = exports.export(sl.operators.conv2d(), tmp_path / "conv.py", CONV, scale=0.5)
    assert (done.format, done.compared_with) == ("python", "itself")
    text = (tmp_path / "conv.py").read_text()
    for line in (
        "[batch, 4, 5, 3] -> [batch, 6, 5, 3]",
        "weights     [4, 3, 3, 6]",
        "parameters  216",
        "constant    0.5",
    ):
        assert line in text
    assert f"FLOPs       {sl.operators.conv2d().flops(CONV)} at N=1" in text
    assert "syno_lab" not in text.replace("syno_lab.Operator.from_json", "")


def test_the_formula_of_the_numbers_is_that_of_the_files() -> None:
    namespace: dict[str, object] = {"__name__": "file"}
    exec(exports.standalone_source(sl.operators.conv2d(), CONV), namespace)
    np.testing.assert_array_equal(namespace["filled"]((3, 5, 999), 4).numpy(), filled((3, 5, 999), 4))


# -- weights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(sl.operators.KNOWN))
def test_weights_of_known_operators(name: str, tmp_path: Path) -> None:
    operator, binding = small_case(name)
    module = to_torch(operator, binding).to(torch.float64 if name < "m" else torch.bfloat16)
    done = exports.export(operator, tmp_path / "w.safetensors", binding, module=module)
    assert done.bytes == done.path.stat().st_size
    again = exports.load_weights(operator, done.path)
    assert again.binding == binding
    for key, tensor in module.state_dict().items():
        assert tensor.dtype == again.state_dict()[key].dtype
        assert torch.equal(tensor, again.state_dict()[key])
    assert exports.read_operator(done.path) == (operator, binding)


def test_weights_belong_to_an_operator_and_its_sizes(tmp_path: Path) -> None:
    path = exports.save_weights(to_torch(sl.operators.conv2d(), CONV), tmp_path / "conv.safetensors")
    exports.load_weights(sl.operators.conv2d(), path, CONV | {"N": 8})
    with pytest.raises(
        FormatError, match=r"conv.safetensors: expected weights for C_in=8, k_1=5, found .* C_in=4, k_1=3"
    ):
        exports.load_weights(sl.operators.conv2d(), path, CONV | {"C_in": 8, "k_1": 5})
    other = r"expected weights of .* with \[C_in, C_out\].*, found those of .* with \[C_in, k_1, k_1, C_out\]"
    with pytest.raises(FormatError, match=other):
        exports.load_weights(sl.operators.conv1x1(), path)
    with pytest.raises(FormatError, match=other):
        exports.load_weights_into(to_torch(sl.operators.conv1x1(), POINTWISE), path)
    with pytest.raises(SpecError, match="no value for C_in"):
        exports.load_weights(sl.operators.conv2d(), path, {"N": 1, "C_out": 4, "H": 5, "W": 5})


def test_other_steps_of_the_same_shapes_are_another_operator(tmp_path: Path) -> None:
    """UNFOLD of H with one or the other window: the weight's axes change places."""
    operator = sl.operators.conv2d()
    record = json.loads(operator.to_json())
    first, second = (step for step in record["steps"] if step["primitive"] == "UNFOLD")
    first["operands"][1], second["operands"][1] = second["operands"][1], first["operands"][1]
    turned = Operator.from_json(json.dumps(record))
    assert str(turned) == str(operator)
    assert identity(turned) != identity(operator) == identity(Operator.from_json(operator.to_json()))
    path = exports.save_weights(to_torch(operator, CONV), tmp_path / "conv.safetensors")
    with pytest.raises(FormatError, match="of other steps"):
        exports.load_weights(turned, path)


def test_weights_files_that_are_none(tmp_path: Path) -> None:
    operator = sl.operators.conv2d()
    junk, foreign, short = (tmp_path / f"{name}.safetensors" for name in ("junk", "foreign", "short"))
    junk.write_bytes(pickle.dumps({"weight_1": 1}))
    with pytest.raises(FormatError, match=r"junk.safetensors: expected a safetensors file, found something else"):
        exports.load_weights(operator, junk)
    save_file({"weight_1": torch.zeros(2)}, foreign)
    with pytest.raises(FormatError, match=r"foreign\.safetensors: expected a file exported by Syno Lab"):
        exports.load_weights(operator, foreign)
    header = {KEY: record_of({"": (operator, CONV)}).to_json()}
    save_file({"weight_1": torch.zeros(2)}, short, metadata=header)
    with pytest.raises(FormatError, match=r"short.safetensors: weight_1: expected \(4, 3, 3, 6\), found \(2,\)"):
        exports.load_weights(operator, short)
    save_file({"other": torch.zeros(2)}, short, metadata=header)
    with pytest.raises(FormatError, match="other: expected no such tensor, found"):
        exports.load_weights(operator, short)
    save_file({"weight_1": torch.zeros(2)}, short, metadata={KEY: '{"format": "syno-lab-export"}'})
    with pytest.raises(FormatError, match="expected version 1, found None"):
        exports.load_weights(operator, short)
    newer = json.dumps(json.loads(header[KEY]) | {"version": 2})
    save_file({"weight_1": torch.zeros(2)}, short, metadata={KEY: newer})
    with pytest.raises(FormatError, match=r"short\.safetensors: expected version 1, found 2"):
        exports.load_weights(operator, short)
    lost = json.dumps(json.loads(header[KEY]) | {"operators": {}})
    save_file({"weight_1": torch.zeros(2)}, short, metadata={KEY: lost})
    with pytest.raises(FormatError, match="expected one of the file's operators"):
        exports.load_weights(operator, short)
    with pytest.raises(FormatError, match="expected a readable file, found: No such file"):
        exports.load_weights(operator, tmp_path / "none.safetensors")
    with pytest.raises(FormatError, match=r"weights.bin: expected a file named \*.safetensors"):
        exports.load_weights(operator, tmp_path / "weights.bin")
    with pytest.raises(ExportError, match=r"expected a file named \*.safetensors, found 'weights.pt'"):
        exports.save_weights(to_torch(operator, CONV), tmp_path / "weights.pt")
    with pytest.raises(ExportError, match="expected a module with an operator in it, found none"):
        exports.save_weights(nn.Linear(2, 2), tmp_path / "weights.safetensors")


# -- networks ----------------------------------------------------------------------------------------------------------


def network(operator: Operator) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), to_torch(operator, CONV), nn.ReLU())


@pytest.mark.parametrize("suffix", sorted(RUN))
def test_a_whole_network(suffix: str, tmp_path: Path) -> None:
    operator = sl.operators.conv2d()
    net = network(operator)
    net(torch.randn(8, 3, 5, 3))  # statistics for the batch normalisation
    path = tmp_path / f"net{suffix}"
    exports.export_network(net, path, torch.randn(1, 3, 5, 3))
    assert net.training
    assert all(part.training for part in net.modules())
    x = torch.randn(6, 3, 5, 3)
    net.eval()
    np.testing.assert_allclose(RUN[suffix](path, x.numpy()), net(x).detach().numpy(), rtol=0, atol=1e-4)
    record = read_record(path)
    assert record.operator("2") == operator
    assert record.places["2"].binding == CONV
    with pytest.raises(FormatError, match="expected a file of one operator, found a network with 1"):
        exports.read_operator(path)


def test_weights_of_a_whole_network(tmp_path: Path) -> None:
    path, net = tmp_path / "net.safetensors", network(sl.operators.conv2d())
    exports.export_network(net, path, torch.randn(1, 3, 5, 3))
    other = network(sl.operators.conv2d())
    exports.load_weights_into(other, path)
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), other.state_dict().values(), strict=True))
    with pytest.raises(FormatError, match="expected weights of one operator, found those of a network of 1"):
        exports.load_weights(sl.operators.conv2d(), path)
    with pytest.raises(FormatError, match="expected weights of operators at the top, found 2"):
        exports.load_weights_into(to_torch(sl.operators.conv2d(), CONV), path)
    with pytest.raises(ExportError, match="python: expected one operator, found a network"):
        exports.export_network(net, tmp_path / "net.py", torch.randn(1, 3, 5, 3))


def test_a_network_whose_batch_is_a_number_is_refused(tmp_path: Path) -> None:
    class Fixed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(2, 3)

    with pytest.raises(ExportError, match=r"torch.export: expected a module of one tensor with axes \[0\] of any size"):
        exports.export_network(Fixed(), tmp_path / "net.onnx", torch.randn(2, 3))


# -- names, modules, places --------------------------------------------------------------------------------------------


def test_formats_go_by_names(tmp_path: Path) -> None:
    operator = sl.operators.conv2d()
    with pytest.raises(ExportError, match=r"expected a file with one of the suffixes .onnx \(onnx\), .*found 'a.bin'"):
        exports.export(operator, tmp_path / "a.bin", CONV)
    with pytest.raises(ExportError, match=r"onnx: expected a file named \*.onnx, found 'a.pt2'"):
        exports.export(operator, tmp_path / "a.pt2", CONV, format="onnx")
    with pytest.raises(
        ExportError, match="format: expected one of onnx, torch-export, python, weights, found 'tflite'"
    ):
        exports.export(operator, tmp_path / "a.tflite", CONV, format="tflite")


def test_the_module_is_the_operator_s(tmp_path: Path) -> None:
    operator, path = sl.operators.conv2d(), tmp_path / "a.pt2"
    with pytest.raises(ExportError, match=r"module: expected to_torch's module of .*, found another module"):
        exports.export(operator, path, CONV, module=nn.Linear(2, 2))
    with pytest.raises(ExportError, match=r"module: expected to_torch's module of .*, found that of \[N, C_in, H, W\]"):
        exports.export(operator, path, CONV, module=to_torch(sl.operators.conv1x1(), POINTWISE))
    with pytest.raises(ExportError, match="module: expected one for H=5, found one for H=7"):
        exports.export(operator, path, CONV, module=to_torch(operator, CONV | {"H": 7, "N": 3}))


def test_bindings_and_places_that_do_not_do(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no value for"):
        exports.export(sl.operators.conv2d(), tmp_path / "a.py", {"N": 1})
    fractional = {"N": 1, "C_in": 3, "C_out": 4, "H": 3, "W": 3, "k_1": 3, "g": 2}
    with pytest.raises(SpecError, match="C_in"):
        exports.export(sl.operators.KNOWN["grouped"](), tmp_path / "a.py", fractional)
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match=r"expected to write .*, found: .*; choose another place"):
        exports.export(sl.operators.conv2d(), tmp_path / "file" / "a.py", CONV)


# -- operators back from files -----------------------------------------------------------------------------------------


def test_reading_an_archive_runs_nothing(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return Path.touch, (tmp_path / "exploded",)

    operator = sl.operators.conv2d()
    with zipfile.ZipFile(tmp_path / "a.pt2", "w") as archive:
        archive.writestr("a/data/sample_inputs/model.pt", pickle.dumps(Bomb()))
        archive.writestr(f"a/extra/{KEY}.json", record_of({"": (operator, CONV)}).to_json())
    assert exports.read_operator(tmp_path / "a.pt2") == (operator, CONV)
    (tmp_path / "a.py").write_text(
        f"open({str(tmp_path / 'exploded')!r}, 'w')\nOPERATOR_JSON = {operator.to_json()!r}\nBINDING = {CONV!r}\n"
    )
    assert exports.read_operator(tmp_path / "a.py") == (operator, CONV)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.onnx", b"\xff" * 50, "expected an ONNX file, found something else"),
        ("a.pt2", b"PK not really", r"expected a .pt2 archive of torch.export, found something else"),
        ("a.py", b"def", "expected a Python file exported by Syno Lab"),
        ("a.py", b"OPERATOR_JSON = 1\nBINDING = {}", "expected a Python file exported by Syno Lab"),
        ("a.py", b"OPERATOR_JSON = open('x')\nBINDING = {}", "expected a Python file exported by Syno Lab"),
        ("a.py", b"import os", "expected a file exported by Syno Lab, found one without the record"),
        ("a.py", b"#" * (5 << 20), "expected a readable file, found: expected at most 4194304 bytes"),
        ("a.txt", b"", r"expected a file named \*.onnx, \*.pt2, .*, found '.txt'"),
    ],
)
def test_files_without_an_operator(name: str, content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError, match=f"{name}: {why}"):
        exports.read_operator(tmp_path / name)


def test_archives_with_too_much_and_too_little(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt2", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"a/extra/{KEY}.json", b" " * (2 << 20))
    with pytest.raises(FormatError, match="expected a record of at most"):
        exports.read_operator(tmp_path / "a.pt2")
    with zipfile.ZipFile(tmp_path / "b.pt2", "w") as archive:
        archive.writestr("b/version", "1")
    with pytest.raises(FormatError, match="found one without the record"):
        exports.read_operator(tmp_path / "b.pt2")
    illegal = record_of({"": (sl.operators.conv2d(), CONV)}).to_json().replace("SHARE", "STEAL")
    with zipfile.ZipFile(tmp_path / "c.pt2", "w") as archive:
        archive.writestr(f"c/extra/{KEY}.json", illegal)
    with pytest.raises(FormatError, match=r"c.pt2: operator file: step 3"):
        exports.read_operator(tmp_path / "c.pt2")
