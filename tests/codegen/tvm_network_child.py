"""What ``test_tvm_network.py`` does with TVM, in a process of its own: ``python tvm_network_child.py KIND``."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from syno_lab.errors import SynoError

SMALL = {"N": 2, "C_out": 16, "H": 6, "W": 4, "k": 3, "s": 2, "g": 4}


def message(call: Any) -> str:
    """The one line of what ``call`` raises."""
    try:
        call()
    except SynoError as error:
        return str(error)
    return ""


def run_network(executable: Any, x: np.ndarray[Any, Any]) -> Any:
    """The output of a processor's executable for ``x``."""
    import tvm
    from tvm import relax

    machine = relax.VirtualMachine(executable, tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x, tvm.cpu())).numpy()


def one_thread(module: Any) -> Any:
    """A GPU's program with its threads one after the other, for a processor.

    That shows what the schedule computes; it is right where threads do not need each other's partial results before
    the loop that makes them has ended, as in the default schedules, which begin a new loop over threads after each.
    """
    import tvm

    bound = r'T\.thread_binding\(([^,()]+), thread="[^"]+"(, annotations=\{[^}]*\})?\)'
    text = re.sub(bound, r"T.serial(\1)", module.script())
    assert "thread_binding" not in text
    return tvm.script.from_source(re.sub(r'"target": T\.target\(\{.*?\}\),? ?', "", text))


def gpu() -> None:
    """Every known operator for a Jetson's GPU and for any GPU."""
    from syno_lab.processes.light import import_tvm

    import_tvm()
    import tvm

    sys.path.insert(0, str(Path(__file__).parent.parent))
    from cuda_code import compile_cuda, cuda_compilers, device_source

    from syno_lab.codegen import tvm_device
    from syno_lab.codegen.reference import reference
    from syno_lab.codegen.tvm_target import to_tvm
    from syno_lab.operators import KNOWN

    answer: dict[str, Any] = {"operators": {}, "cubin": None}
    target = tvm_device.find_target("jetson-orin-nano")
    generator = np.random.default_rng(0)
    for name, make in KNOWN.items():
        operator = make()
        given = {one: SMALL.get(one, 8) for one in operator.spec.symbols.names if one not in operator.spec.defaults}
        binding = operator.complete_binding(given)
        module = to_tvm(operator, binding, target=target)
        shapes = operator.input_sizes(binding), *operator.weight_sizes(binding)
        arrays = [np.asarray(generator.standard_normal(shape)).astype("float32") for shape in shapes]
        want = reference(operator, *(one.astype("float64") for one in arrays), binding=binding)
        buffers = [tvm.runtime.tensor(one) for one in (*arrays, np.full(want.shape, np.nan, "float32"))]
        tvm.compile(one_thread(module), target="llvm")["main"](*buffers)
        error = float(np.abs(buffers[-1].numpy() - want).max() / max(1.0, np.abs(want).max()))
        source = device_source(module, target)
        answer["operators"][name] = {"error": error, "kernels": source.count('extern "C" __global__ void')}
    operator = KNOWN["operator_1"]()
    binding = operator.complete_binding({"N": 2, "C_in": 8, "C_out": 16, "H": 6, "W": 4})
    source = device_source(to_tvm(operator, binding, target="cuda"), tvm_device.find_target("cuda"))
    answer["cuda"] = source.count("__global__")
    if cuda_compilers():
        answer["cubin"] = list(compile_cuda(source, "sm_87")[:4])
    answer["messages"] = {
        "not built": message(lambda: to_tvm(operator, binding, target="vulkan")),
        "unknown": message(lambda: to_tvm(operator, binding, target="no-such")),
        "json": message(lambda: to_tvm(operator, binding, target="{")),
    }
    print(json.dumps(answer))


def network() -> None:
    """The forms of one network in Relax."""
    import torch
    from torch import nn

    import syno_lab as sl
    from syno_lab.codegen.tvm_device import find_target
    from syno_lab.codegen.tvm_network import called_functions, compile_network, network_to_tvm, optimized

    class Determinant(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.svdvals(x)

    def operator(name: str, channels: int) -> nn.Module:
        sizes = {"N": 1, "C_in": channels, "C_out": channels, "H": 4, "W": 4}
        return sl.operators.KNOWN[name]().to_torch(sizes)

    net = nn.Sequential(operator("operator_1", 8), nn.ReLU(), operator("operator_1", 8), operator("conv2d", 8)).eval()
    plain = network_to_tvm(net, (2, 8, 4, 4))
    kept = network_to_tvm(net, (2, 8, 4, 4), keep_params=True)
    target = find_target("jetson-orin-nano")
    compile_network(optimized(plain, target), target)
    print(
        json.dumps(
            {
                "functions": called_functions(plain),
                "calls": plain["main"].script().count("R.call_tir("),
                "parameters": [len(one["main"].params) for one in (plain, kept)],
                "values": [list(one.shape) for one in kept["main"].attrs["params"]],
                "unsupported": message(lambda: network_to_tvm(Determinant(), (4, 4))),
            }
        )
    )


def convolutions() -> None:
    """torch's own convolutions in Relax: what they compute, the shapes of their weights, and the vectors of a sum."""
    import torch
    from torch import nn
    from tvm.s_tir import Schedule

    from syno_lab.codegen.tvm_device import find_target
    from syno_lab.codegen.tvm_network import compile_network, network_to_tvm, optimized
    from syno_lab.tuning.lanes import channel_lanes

    torch.manual_seed(0)
    layers = [
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.Conv2d(16, 16, (3, 2), groups=16, dilation=(1, 2)),
        nn.Conv2d(16, 32, 1, groups=4),
        nn.Conv2d(32, 24, 1, stride=(2, 1)),
    ]
    net, x = nn.Sequential(*layers).eval(), torch.randn(2, 8, 12, 12)
    answer: dict[str, Any] = {"weights": {}}
    for name in ("local:1", "jetson-orin-nano"):
        module = optimized(network_to_tvm(net, x.shape), find_target(name))
        functions = {one.name_hint: f for one, f in module.functions_items() if "conv2d" in one.name_hint}
        shapes = [[int(n) for n in f.params[1].shape] for f in functions.values()]
        answer["weights"][name] = sorted(shapes)
        if name == "local:1":
            found = run_network(compile_network(module, find_target(name))[0], x.numpy())
            answer["error"] = float(np.abs(found - net(x).detach().numpy()).max())
            first = next(f for f in functions.values() if int(f.params[1].shape[0]) == 8)
            schedule = Schedule(first.with_attr("global_symbol", "main"))
            changed = channel_lanes(schedule, schedule.get_sblock("conv2d_nchw"), 256)
            answer["vectorized"] = ["T.vectorized" in one.mod.script() for one in changed]
    kept = optimized(network_to_tvm(net, x.shape, keep_params=True), find_target("local:1"))
    answer["permuted"] = kept.script().count("transpose")
    print(json.dumps(answer))


def followed() -> None:
    """Convolutions with what follows them: the functions of the network, and the schedules of one of them."""
    import torch
    import tvm
    from torch import nn
    from tvm.s_tir import Schedule

    from syno_lab.codegen.tvm_device import find_target
    from syno_lab.codegen.tvm_network import called_functions, compile_network, network_to_tvm, optimized
    from syno_lab.tuning.lanes import channel_lanes
    from syno_lab.tuning.nests import nest

    class Net(nn.Module):
        """A residual block and a normalization without parameters of its own."""

        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(16, 16, 3, padding=1, bias=False)
            self.first, self.second = nn.BatchNorm2d(16, eps=0.1), nn.BatchNorm2d(16, affine=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(torch.relu(self.first(self.convolution(x)) + x))

    torch.manual_seed(0)
    net, x = Net().train(), torch.randn(2, 16, 8, 8)
    for one in net.parameters():
        nn.init.normal_(one)
    net(3 * x + 1)
    net.eval()
    target = find_target("local:1")
    module = network_to_tvm(net, x.shape, "local:1")
    found = run_network(compile_network(module, target)[0], x.numpy())
    want = net(x).detach().numpy()
    names = called_functions(module)
    main = tvm.IRModule({"main": module[names[0]].with_attr("global_symbol", "main")})
    generator = np.random.default_rng(0)
    shapes = [[int(n) for n in one.shape] for one in main["main"].params]
    arrays = [generator.standard_normal(shape).astype("float32") for shape in shapes]

    def output(program: Any) -> Any:
        buffers = [tvm.runtime.tensor(one) for one in arrays]
        tvm.compile(program, target=target)["main"](*buffers)
        return buffers[-1].numpy()

    plain = output(main)
    schedule = Schedule(main)
    block = next(name for name in re.findall(r'T\.sblock\("([^"]+)"\)', main.script()) if "conv2d" in name)
    changed = channel_lanes(schedule, schedule.get_sblock(block), 256)
    errors = [float(np.abs(output(one.mod) - plain).max() / np.abs(plain).max()) for one in changed]
    kept = network_to_tvm(net, x.shape, "local:1", keep_params=True)
    given = network_to_tvm(net, x.shape)
    before = given.script()
    optimized(given, target)
    answer = {
        "stays": given.script() == before,
        "error": float(np.abs(found - want).max() / np.abs(want).max()),
        "functions": names,
        "with parameters": called_functions(kept),
        "errors": errors,
        "before": nest(main["main"]),
        "after": [nest(one.mod["main"]) for one in changed],
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    kinds = {"gpu": gpu, "network": network, "convolutions": convolutions, "followed": followed}
    kinds[sys.argv[1]]()
