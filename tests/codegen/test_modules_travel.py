"""Modules and whole networks with operators in them are pickled in one process and give the same in another."""

import copy
import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from syno_lab import operators
from syno_lab.alpha.known import conv_block
from syno_lab.canvas.fitted import Fitted
from syno_lab.canvas.known import convolution
from syno_lab.codegen.export_record import operators_in
from syno_lab.models import resnet_tiny
from syno_lab.models.layers import survey
from syno_lab.models.slot import put_in
from syno_lab.nas_pte.operator import NAS_PTE

SIZES = {"N": 1, "C_in": 8, "C_out": 8, "H": 6, "W": 6}

LOADS = """
import pickle, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
for name in sys.argv[1:]:
    content = Path(name).read_bytes()
    module, x, wanted = torch.load(name, weights_only=False) if name.endswith(".pt") else pickle.loads(content)
    module.eval()
    with torch.no_grad():
        assert torch.equal(module(x), wanted), name
    print(type(module).__name__)
"""


def sent(module: nn.Module, shape: tuple[int, ...], path: Path) -> Path:
    """Write the module with an input and what it makes of it."""
    module.eval()
    x = torch.randn(shape)
    with torch.no_grad():
        content = module, x, module(x)
    if path.suffix == ".pt":
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content))
    return path


def network() -> nn.Module:
    net = resnet_tiny(10, 1, width=8)
    found = survey(net, (1, 8, 8))
    filled, _ = put_in(net, found.select(), operators.conv2d())
    return filled


def compiled(net: nn.Module) -> nn.Module:
    """The network, once it has been compiled and has run."""
    net.eval()
    torch.compile(net, backend="eager")(torch.randn(2, 1, 8, 8))
    return net


def test_modules_give_the_same_in_a_fresh_process(tmp_path):
    torch.manual_seed(0)
    files = [
        sent(operators.conv2d().to_torch(SIZES), (2, 8, 6, 6), tmp_path / "module.pt"),
        sent(operators.operator_1().to_torch(SIZES, scale=0.5, order="naive"), (2, 8, 6, 6), tmp_path / "scaled.pkl"),
        sent(NAS_PTE["nas_pte_1"]().to_torch(SIZES), (2, 8, 6, 6), tmp_path / "concatenation.pt"),
        sent(network(), (2, 1, 8, 8), tmp_path / "network.pt"),
        sent(compiled(network()), (2, 1, 8, 8), tmp_path / "compiled.pkl"),
    ]
    done = subprocess.run(
        [sys.executable, "-c", LOADS, *map(str, files)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["SynoOperator", "SynoOperator", "SynoOperator", "CifarResNet", "CifarResNet"]


def test_what_travelled_knows_its_operator_and_its_settings():
    """Operator, binding and constant factor come along, and nothing random is drawn on the way."""
    made = operators.operator_1().to_torch(SIZES, scale=0.5)
    before = torch.get_rng_state()
    for other in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert torch.equal(torch.get_rng_state(), before)
        assert other.operator == made.operator
        assert other.binding == made.binding
        assert other.weight_1 is not made.weight_1
        x = torch.randn(2, 8, 6, 6, generator=torch.Generator().manual_seed(0))
        assert torch.equal(other(x), made(x))
        assert other.training == made.training
        with torch.no_grad():
            other.weight_1.zero_()  # a copy of its own
        assert made.weight_1.abs().sum() > 0


def test_a_network_keeps_where_its_operators_are():
    net = network()
    other = pickle.loads(pickle.dumps(net))
    mine, theirs = operators_in(net), operators_in(other)
    assert mine
    assert mine == theirs
    assert other.state_dict().keys() == net.state_dict().keys()


@pytest.mark.parametrize("make", [operators.conv2d, NAS_PTE["nas_pte_1"], lambda: Fitted(convolution()), conv_block])
def test_a_compiled_module_is_compiled_anew(make):
    binding = {"N": 2} if make is conv_block else {**SIZES, "C_out": 16}
    made = make().to_torch(binding)
    made.compile()
    for other in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert inspect.unwrap(other._compiled_call_impl).__self__ is other
    assert pickle.loads(pickle.dumps(make().to_torch(binding)))._compiled_call_impl is None
    assert operators.conv2d().to_torch(SIZES, compile=True)._compiled_call_impl is not None
