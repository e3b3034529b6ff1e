"""The process that runs an operator's TVM module: ``python -m … FOLDER``, with ``request.json`` and ``arrays.npz``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from syno_lab.processes.light import import_tvm
from syno_lab.systems import builder_of
from syno_lab.tuning.child import load_module
from syno_lab.tuning.values import TuningTask


def main(folder: Path) -> None:
    """Write ``output.npy``: what the module of the operator's builder gives for the arrays."""
    tvm = import_tvm()
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    text = request["operator"]
    module = load_module(TuningTask("operator", text, request["binding"], builder=builder_of(text)))
    with np.load(folder / "arrays.npz") as file:
        buffers = [tvm.runtime.tensor(file[name]) for name in file.files]
    output = tvm.runtime.tensor(np.full(request["shape"], np.nan, "float32"))
    tvm.compile(module, target="llvm")["main"](*buffers, output)
    np.save(folder / "output.npy", output.numpy())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
