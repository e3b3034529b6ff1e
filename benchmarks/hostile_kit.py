"""The well-formed files that the hostile inputs are made from: one of each kind, written once in a folder."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sys
from functools import cache
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent / "tests"
BINDING = {"N": 1, "C_in": 4, "C_out": 8, "H": 6, "W": 6, "k_1": 3}
OPERATORS = ("conv2d", "separable", "operator_1", "operator_2")
CANVAS_KERNELS = ("involution", "squeeze_excite", "depthwise_separable", "figure_6")
NETWORKS = ("conv_block", "residual_block", "mlp_block", "attention_block")
SETTINGS = {"epochs": 3, "seed": 0}
SPEC: dict[str, Any] = {
    "input_shape": "[N, C, H]",
    "output_shape": "[N, C, s^-1*H]",
    "primary_specs": ["N: 0", "C=8: 2", "H = 12: 2"],
    "coefficient_specs": ["k=3: 2", "s=2: 2"],
    "mappings": [{"N": 1}, {"N": 2, "C": 4, "H": 16, "k": 5, "s": 2}],
    "fixed_io_pairs": [[0, 0]],
    "unordered": ["C"],
    "max_primitives": 4,
    "max_flops": 10**6,
    "seed": 3,
}


def write_kit(folder: Path) -> None:
    """Write all of them."""
    _write_texts(folder)
    _write_systems(folder)
    _write_tuning_record(folder)
    _write_data(folder)
    _write_lab(folder / "lab")
    _write_checkpoint(folder / "checkpoint.pt")
    _write_exports(folder)


@cache
def kit_bytes(folder: Path, name: str) -> bytes:
    """The content of one of the files."""
    return (folder / name).read_bytes()


@cache
def tuning_key() -> Any:
    """The key of the tuning record."""
    from syno_lab import operators
    from syno_lab.tuning import TuningTask
    from syno_lab.tuning.records import key_of

    return key_of(
        TuningTask("conv2d", operators.conv2d().to_json(), BINDING), '{"kind": "llvm"}', "0.27.0", "threads=2"
    )


def training_parts() -> Any:
    """A module with its optimizer, as the checkpoint has them."""
    import torch

    from syno_lab.training.checkpoint import Trained

    module = torch.nn.Linear(3, 2)
    return Trained(module, torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9), torch.amp.GradScaler("cpu"))


def _write_texts(folder: Path) -> None:
    from itertools import islice

    from syno_lab.ir.spec import Spec
    from syno_lab.operators import KNOWN
    from syno_lab.sessions.session import Session
    from syno_lab.synthesis.record import record_search, to_text
    from syno_lab.synthesis.sampler import Sampler

    for name in OPERATORS:
        (folder / f"{name}.json").write_text(KNOWN[name]().to_json())
    session = Session(KNOWN["conv2d"]())
    (folder / "session.json").write_text(session.to_json())
    (folder / "session.word").write_text(session.to_word())
    spec = Spec.parse(**{key: value for key, value in SPEC.items() if key != "seed"})
    drawn = islice(Sampler.from_spec(spec, seed=3).samples(), 6)
    (folder / "record.json").write_text(to_text(record_search(spec, 3, drawn)))
    (folder / "tree.json").write_text(json.dumps(_tree()))


def _write_systems(folder: Path) -> None:
    from syno_lab.alpha.known import KNOWN as BLOCKS
    from syno_lab.canvas.known import KNOWN as KERNELS
    from syno_lab.sessions.session import session_of
    from syno_lab.systems import find_system

    canvas = find_system("syno-lab-canvas")
    for name in CANVAS_KERNELS:
        operator = canvas.operator_of(KERNELS[name]())
        assert operator is not None
        (folder / f"canvas-{name}.json").write_text(operator.to_json())
    for name in NETWORKS:
        (folder / f"alpha-{name}.json").write_text(BLOCKS[name]().to_json())
    for name, session in (
        ("canvas", session_of(KERNELS["involution"]())),
        ("alpha", session_of(BLOCKS["conv_block"]())),
    ):
        (folder / f"{name}-session.json").write_text(session.to_json())
        (folder / f"{name}-session.word").write_text(session.to_word())


def _tree() -> dict[str, Any]:
    blank = {"visits": 3, "outstanding": 0, "fruitless": 1, "mean": 0.5, "best": 0.7, "distance": 2, "steps": 1}
    flags = {"is_complete": False, "is_closed": False, "is_dead": False}
    places = [
        {"number": number, "parent": number - 1, "step": f"REDUCE(k)x{number}" if number else None, **blank, **flags}
        for number in range(5)
    ]
    return {"format": "syno-lab search tree", "version": 1, "places": places}


def _write_tuning_record(folder: Path) -> None:
    from syno_lab.tuning import TuningResult
    from syno_lab.tuning.records import Trial, open_record

    result = TuningResult("conv2d", 1.5, 1.25, 12, 3, 1, 9.0, '{"kind": "llvm"}', "0.27.0", 0, True, ((1, 2.0),))
    with open_record(folder / "tunings", tuning_key()) as record:
        record.add_trial(Trial([["GetSBlock", [], ["Y", "main"], ["b0"]], [0, [4, 1]]], (1e-3, 1.1e-3), board="a:1"))
        record.add_trial(Trial([["x"], []], (), reason="RPCError: connection reset", board="b:2"))
        record.add_result(result)
    (folder / "tuning.jsonl").write_bytes(record.path.read_bytes())


def _write_data(folder: Path) -> None:
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    table = rng.integers(0, 256, (4, 3073), dtype=np.uint8)
    table[:, 0] %= 10
    (folder / "data_batch.bin").write_bytes(table.tobytes())
    batch = {b"data": np.ascontiguousarray(table[:, 1:]), b"labels": [int(one) for one in table[:, 0]]}
    (folder / "data_batch.pickle").write_bytes(pickle.dumps(batch, protocol=2))
    (folder / "names.pickle").write_bytes(
        pickle.dumps({b"label_names": [f"c{i}".encode() for i in range(10)]}, protocol=2)
    )
    Image.fromarray(rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(folder / "image.png")
    Image.fromarray(rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(folder / "image.jpg")
    (folder / "text.txt").write_text("To be, or not to be: that is the question.\n" * 40)


def _write_lab(folder: Path) -> None:
    sys.path.insert(0, str(TESTS))
    from known_runs import fill_lab

    from syno_lab.store import Store

    folder.mkdir()
    fill_lab(folder, 12)
    with Store.open(folder) as store:  # moves the write-ahead log into the file
        store.database.column("SELECT count(*) FROM syno_jobs")
    search = folder / "searches" / "known"
    search.mkdir(parents=True)
    (search / "tree.json").write_text(json.dumps(_tree()))
    (search / "status.json").write_text(json.dumps({"state": "running", "trials": 12}))


def _write_checkpoint(path: Path) -> None:
    import torch

    from syno_lab.training.checkpoint import Standing, save_checkpoint

    trained = training_parts()
    trained.module(torch.ones(4, 3)).sum().backward()
    trained.optimizer.step()
    save_checkpoint(path, SETTINGS, trained, Standing([], 0.5, 1.0, 1.0, 1.0))


def _write_exports(folder: Path) -> None:
    import msgspec
    import torch

    from syno_lab import operators
    from syno_lab.codegen.export import export
    from syno_lab.codegen.library import FORMAT, VERSION, LibraryRecord, sidecar

    operator = operators.conv2d()
    torch.manual_seed(0)
    for suffix in ("onnx", "pt2", "py", "safetensors"):
        export(operator, folder / f"conv.{suffix}", BINDING)
    for suffix in ("so", "tar"):
        path = folder / f"conv.{suffix}"
        path.write_bytes(os.urandom(300))  # it is never loaded here, only compared with its digest
        record = LibraryRecord(
            FORMAT, VERSION, operator.to_json(), BINDING, "float32", '{"kind": "llvm"}', "llvm", "x86_64", False, None,
            hashlib.sha256(path.read_bytes()).hexdigest(), "0.1", "0.27.0",
        )  # fmt: skip
        sidecar(path).write_bytes(msgspec.json.encode(record))
