"""The doors of the lab through which somebody else's bytes and words come in, and hostile inputs for each.

A surface draws an input, writes what belongs to it into the folder ``given`` of its place, and returns what opens it
with the lab's own reader, as a library function or a command. What a reader may do is to succeed, or to refuse in one
line; `hostile_work` judges.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import hostile_damage as damage
from hostile_kit import BINDING, OPERATORS, SETTINGS, SPEC, kit_bytes, training_parts, tuning_key

Opening = Callable[[], object]


@dataclass(frozen=True)
class Place:
    """Where one input lives.

    Attributes:
        kit: the well-formed files.
        given: the folder that is read; nothing in it may change.
        marker: the folder that a payload would make.
        command: runs ``syno-lab`` with these words in this process and judges what it says.
    """

    kit: Path
    given: Path
    marker: Path
    command: Callable[..., object]

    def bytes(self, name: str) -> bytes:
        """A well-formed file."""
        return kit_bytes(self.kit, name)

    def json(self, name: str) -> Any:
        """A well-formed file of JSON."""
        return json.loads(self.bytes(name))

    def file(self, rng: random.Random, name: str, content: str | bytes) -> Path:
        """A file of that name, or now and then an odd one, or something that is no plain file."""
        path = self.given / damage.odd_name(rng, name)
        if rng.random() < 0.05:
            return damage.odd_place(rng, path)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        return path


def operators(rng: random.Random, place: Place) -> Opening:
    """Operator files: as text, through ``show`` and ``export``, and NAS-PTE's."""
    from syno_lab import Operator
    from syno_lab.nas_pte import operator as nas_pte

    whole = place.json(f"{rng.choice(OPERATORS)}.json")
    if rng.random() < 0.1:
        whole = json.loads(nas_pte.nas_pte_1().to_json())
        text = damage.damaged_json(rng, whole, place.marker)
        return lambda: nas_pte.from_json(text)
    if rng.random() < 0.3:
        steps = whole["steps"]
        for _ in range(rng.choice((1, 1, 3))):
            step = rng.choice(steps)
            step[rng.choice(("operands", "given"))] = [rng.randrange(-1, 14) for _ in range(rng.randrange(4))]
            if rng.random() < 0.3:
                step["primitive"] = rng.choice(
                    ["REDUCE", "SHARE", "SPLIT", "MERGE", "SHIFT", "EXPAND", "UNFOLD", "STRIDE", "NONE"]
                )
        text = json.dumps(whole)
    else:
        text = damage.damaged_json(rng, whole, place.marker)
    if rng.random() < 0.55:
        return lambda: Operator.from_json(text)
    path = place.file(rng, "operator.json", text)
    form = rng.choice(
        ["summary", "loops", "python", "c", "latex", "table", "receptive-field", "mixing", "source", "dot", "file"]
    )
    bind = [word for pair in BINDING.items() if rng.random() < 0.5 for word in ("--bind", f"{pair[0]}={pair[1]}")]
    return lambda: place.command("show", path, "--as", form, *bind)


def sessions(rng: random.Random, place: Place) -> Opening:
    """Sessions as JSON and in a word, pasted or from a file."""
    import base64
    import zlib

    from syno_lab.sessions.session import session_of
    from syno_lab.sessions.text import PREFIX

    word = place.bytes("session.word").decode()
    way = rng.randrange(6)
    if way == 0:
        text = damage.damaged_text(rng, word, place.marker)
    elif way == 1:
        packed = damage.damaged_bytes(rng, zlib.compress(place.bytes("session.json")))
        text = PREFIX + base64.urlsafe_b64encode(packed).decode()
    elif way == 2:
        inside = damage.damaged_json(rng, place.json("session.json"), place.marker).encode("utf-8", "surrogatepass")
        text = PREFIX + base64.urlsafe_b64encode(zlib.compress(inside)).decode().rstrip("=")
    elif way == 3:
        text = PREFIX + base64.urlsafe_b64encode(zlib.compress(b"[" * (rng.choice((1, 30)) << 20))).decode()
    else:
        text = damage.damaged_json(rng, place.json("session.json"), place.marker)
    if rng.random() < 0.9:
        return lambda: session_of(text)
    from syno_widgets.stepper import Stepper

    path = place.file(rng, "session.json", text)
    return lambda: Stepper(path)


def specs(rng: random.Random, place: Place) -> Opening:
    """Specs as strings and as files, prepared and drawn from."""
    from syno_lab import Sampler

    if rng.random() < 0.6:
        given: dict[str, Any] = json.loads(json.dumps(SPEC))
        del given["seed"]
        name = rng.choice(list(given))
        odd = rng.choice(damage.odd_values(place.marker))
        value = given[name]
        if isinstance(odd, damage.Raw):
            odd = rng.choice((float("nan"), float("inf"), 9**999, 10**18, b"bytes", object(), {1, 2}))
        if isinstance(value, str) and rng.random() < 0.7:
            given[name] = damage.damaged_text(rng, value, place.marker)
        elif isinstance(value, list) and value and rng.random() < 0.6:
            at = rng.randrange(len(value))
            value[at] = damage.damaged_text(rng, value[at], place.marker) if isinstance(value[at], str) else odd
        else:
            given[rng.choice((name, name, "max_reduces", "min_weights", "weight_limits", "no_such"))] = odd
        shapes = (given.pop("input_shape", "[H]"), given.pop("output_shape", "[H]"))
        variables = (given.pop("primary_specs", ["H"]), given.pop("coefficient_specs", []))
        return lambda: Sampler(*shapes, *variables, **given)
    text = damage.damaged_json(rng, _larger(rng, SPEC), place.marker)
    path = place.file(rng, "spec.json", text)
    if rng.random() < 0.8:
        return lambda: place.command("sample", "--spec", path, "--count", 1, "--seconds", 0.2, "--no-fingerprints")
    return lambda: place.command("enumerate", "--spec", path, "--count", 2, "--max-primitives", 2)


def _larger(rng: random.Random, spec: dict[str, Any]) -> dict[str, Any]:
    """A spec that asks for a lot, now and then."""
    found: dict[str, Any] = json.loads(json.dumps(spec))
    way = rng.randrange(12)
    if way == 0:
        names = [f"A{number}" for number in range(rng.choice((10, 30, 64)))]
        found |= {"input_shape": f"[{', '.join(names)}]", "output_shape": f"[{', '.join(names[::-1])}]"}
        found |= {
            "primary_specs": [f"{name}=4" for name in names],
            "fixed_io_pairs": [],
            "unordered": [],
            "mappings": [],
        }
    elif way == 1:
        found["coefficient_specs"] = [f"k{number}=2" for number in range(rng.choice((12, 200, 3000)))]
        found["mappings"] = []
    elif way == 2:
        found["max_primitives"] = rng.choice((20, 64, 10**6, 10**18))
    elif way == 3:
        found |= {"max_tensors": rng.choice((10, 10**9)), "max_primitives": 20}
    return found


def stores(rng: random.Random, place: Place) -> Opening:
    """A lab's folder whose store, trees or other files were damaged or made by somebody else."""
    from syno_lab.reports import LabReader, front_of, read_courses
    from syno_lab.store import Store

    lab = place.given / "lab"
    shutil.copytree(place.kit / "lab", lab)
    file = lab / "results.sqlite"
    way = rng.randrange(8)
    if way <= 2:
        file.write_bytes(damage.damaged_bytes(rng, file.read_bytes()))
    elif way <= 5:
        _change_rows(rng, file, place.marker)
    elif way == 6:
        damage.odd_place(rng, lab / rng.choice(("results.sqlite", "results.sqlite-wal", "searches/known/tree.json")))
    else:
        for name in ("tree.json", "status.json"):
            path = lab / "searches" / "known" / name
            path.write_text(damage.damaged_json(rng, json.loads(path.read_text()), place.marker), "utf-8", "replace")
        named = {"address": "tcp://127.0.0.1:1", "foreign": True, "pid": 1, "scheduler": "tcp://127.0.0.1:1"}
        (lab / "cluster.json").write_text(damage.damaged_json(rng, named, place.marker), "utf-8", "replace")

    def read() -> object:
        with LabReader(lab) as reader:
            found = reader.read()
            front_of(found.rows, ("flops", "accuracy"))
            return read_courses(found.jobs, lab)

    def look() -> object:
        with Store.look(lab) as store:
            return [(one, one.trials()) for one in store.searches()]

    def tree() -> object:
        from syno_lab.reports.trees import read_tree, tree_file

        return read_tree(tree_file(lab, "known")).summary()

    words = rng.choice((["list"], ["show", rng.choice((1, 2, 99))], ["log", 1], ["watch", 1]))

    def jobs() -> object:  # whoever steers jobs writes
        return place.command("jobs", *words, "--folder", _copied(lab, place.given.parent / "copy"))

    return rng.choice((read, read, look, tree, jobs))


def _change_rows(rng: random.Random, file: Path, marker: Path) -> None:
    """Other values in rows, their digests made right again, as who gives a store away can make them."""
    from syno_lab.store.database import digest

    with closing(sqlite3.connect(file)) as store:
        tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type='table' ORDER BY name")]
        filled = [name for name in tables if store.execute(f"SELECT count(*) FROM {name}").fetchone()[0]]
        for _ in range(rng.choice((1, 1, 3))):
            table = rng.choice(filled)
            columns = [row[1] for row in store.execute(f"PRAGMA table_info({table})")]
            number, *row = rng.choice(store.execute(f"SELECT rowid, * FROM {table}").fetchall())
            at = rng.randrange(len(row))
            old = row[at]
            whole = None
            if isinstance(old, str) and old[:1] in ("{", "["):
                with suppress(ValueError, RecursionError):  # changed before
                    whole = json.loads(old)
            if whole is not None and rng.random() < 0.7:
                row[at] = damage.damaged_json(rng, whole, marker)
            else:
                odd = rng.choice(damage.odd_values(marker))
                row[at] = (
                    odd.text
                    if isinstance(odd, damage.Raw)
                    else json.dumps(odd)
                    if isinstance(odd, dict | list)
                    else odd
                )
            if isinstance(row[at], int) and abs(row[at]) >= 1 << 63:
                row[at] = float(row[at])
            if isinstance(row[at], str):
                row[at] = row[at].encode("utf-8", "replace").decode()
            if "digest" in columns and columns[at] != "digest":
                row[columns.index("digest")] = digest(row[: columns.index("digest")])
            settings = ", ".join(f"{name}=?" for name in columns)
            try:
                store.execute(f"UPDATE {table} SET {settings} WHERE rowid=?", (*row, number))
            except sqlite3.Error:
                continue  # a constraint of the table
        store.commit()
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def records(rng: random.Random, place: Place) -> Opening:
    """Stored searches, tuning records, trees of searches, results for figures."""
    from reproduction.paper.facts import results_of

    from syno_lab.reports.trees import read_tree
    from syno_lab.tuning import list_records
    from syno_lab.tuning.records import known_target

    kind = rng.choice(("record", "record", "tuning", "tuning", "tree", "results", "targets"))
    if kind == "tuning":
        key = tuning_key()
        lines = place.bytes("tuning.jsonl").split(b"\n")
        if rng.random() < 0.4:
            content = damage.damaged_bytes(rng, place.bytes("tuning.jsonl"))
        else:  # a right digest over something else
            at = rng.randrange(len(lines) - 1)
            text = damage.damaged_json(rng, json.loads(lines[at].partition(b" ")[2]), place.marker)
            lines[at] = _sealed(text.encode("utf-8", "surrogatepass").replace(b"\n", b" "))
            content = b"\n".join(lines)
        path = place.given / f"{key.name}.jsonl"
        path.write_bytes(content)
        if rng.random() < 0.08:
            damage.odd_place(rng, path)
        return _opened(place, key) if rng.random() < 0.5 else lambda: list_records(place.given)
    if kind == "targets":
        text = damage.damaged_json(rng, {"a": "b"}, place.marker)
        place.file(rng, "targets.json", text)
        return lambda: known_target(place.given, "llvm", "0.27.0")
    if kind == "record":
        path = place.file(rng, "record.json", damage.damaged_json(rng, place.json("record.json"), place.marker))
        return lambda: place.command("replay", path)
    if kind == "results":
        path = place.file(rng, "results.json", damage.damaged_json(rng, {"a": [1, {"b": 2.5}]}, place.marker))
        return lambda: results_of(path)
    path = place.file(rng, "tree.json", damage.damaged_json(rng, place.json("tree.json"), place.marker))
    return lambda: read_tree(path).summary()


def _sealed(text: bytes) -> bytes:
    import hashlib

    return hashlib.sha256(text).hexdigest()[:_SEAL].encode() + b" " + text


_SEAL = 16


def _opened(place: Place, key: Any) -> Opening:
    """A copy is opened: whoever opens a tuning record writes, and moves damaged lines away."""
    from syno_lab.tuning.records import open_record

    def opening() -> object:
        copy = _copied(place.given, place.given.parent / "records")
        with open_record(copy, key) as record:
            return record.trials, record.results, record.answer(3)

    return opening


def _copied(folder: Path, target: Path) -> Path:
    """A copy of a folder with what is no plain file in it, for readers that write."""
    shutil.copytree(folder, target, symlinks=True, copy_function=_copy)
    return target


def _copy(source: str, target: str) -> str:
    import os
    import stat

    found = os.lstat(source)
    if stat.S_ISREG(found.st_mode) and found.st_size < 1 << 24:
        return str(shutil.copy2(source, target))
    if stat.S_ISREG(found.st_mode):
        with Path(target).open("wb") as file:
            file.truncate(found.st_size)
    elif stat.S_ISFIFO(found.st_mode):
        os.mkfifo(target)
    return target


def data(rng: random.Random, place: Place) -> Opening:
    """Data sets: CIFAR in both forms, images in class folders, texts, archives that were downloaded."""
    from syno_lab.data.datasets import load_dataset
    from syno_lab.data.text import load_text

    kind = rng.choice(("bin", "bin", "py", "py", "py", "images", "text", "tar", "command"))
    if kind == "bin":
        folder = place.given / "cifar-10-batches-bin"
        folder.mkdir()
        whole = place.bytes("data_batch.bin")
        for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
            (folder / name).write_bytes(whole)
        if rng.random() < 0.3:
            names = damage.damaged_text(rng, "\n".join(f"class{number}" for number in range(10)), place.marker)
            (folder / "batches.meta.txt").write_bytes(names.encode("utf-8", "surrogatepass"))
        name = rng.choice(("data_batch_1.bin", "test_batch.bin"))
        place.file(_steady(rng), name, damage.damaged_bytes(rng, whole))
        _moved(rng, place.given / name, folder / name)
        return lambda: load_dataset(folder)
    if kind == "py":
        folder = place.given / "cifar-10-batches-py"
        folder.mkdir()
        whole, names = place.bytes("data_batch.pickle"), place.bytes("names.pickle")
        for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
            (folder / name).write_bytes(whole)
        (folder / "batches.meta").write_bytes(names)
        name = rng.choice(("data_batch_1", "test_batch", "batches.meta"))
        foreign = rng.random() < 0.3
        content = (
            rng.choice(damage.payload_pickles(place.marker))
            if foreign
            else damage.damaged_bytes(rng, names if name == "batches.meta" else whole)
        )
        (folder / name).write_bytes(content)
        if rng.random() < 0.05:
            damage.odd_place(rng, folder / name)
        return lambda: load_dataset(folder)
    if kind == "images":
        for name in ("cat", "dog"):
            (place.given / name).mkdir()
            for number in range(2):
                (place.given / name / f"{number}.png").write_bytes(place.bytes("image.png"))
        suffix = rng.choice(("png", "jpg"))
        path = place.given / "dog" / damage.odd_name(rng, f"3.{suffix}")
        path.write_bytes(damage.damaged_bytes(rng, place.bytes(f"image.{suffix}")))
        if rng.random() < 0.1:
            damage.odd_place(rng, path)
        return lambda: load_dataset(place.given, size=16)
    if kind == "text":
        content = (
            damage.damaged_bytes(rng, place.bytes("text.txt"))
            if rng.random() < 0.7
            else damage.damaged_text(rng, place.bytes("text.txt").decode(), place.marker)
        )
        path = place.file(rng, "text.txt", content)
        return lambda: load_text(path, rng.choice(("bytes", "characters")))
    if kind == "tar":
        path = place.given / "data.tar.gz"  # what was downloaded is a plain file
        path.write_bytes(_archive(rng, place))
        return lambda: _unpacked(path, place.given.parent / "unpacked")
    odd = rng.choice(damage.odd_texts(place.marker))
    return lambda: place.command("train", "conv2d", "--epochs", 1, "--data", place.given / odd[:100].replace("\0", "0"))


def _steady(rng: random.Random) -> random.Random:
    """A generator that gives the plain name."""
    found = random.Random(rng.random())
    while found.random() >= 0.9:  # what `odd_name` looks at first
        continue
    return random.Random(1)


def _moved(rng: random.Random, source: Path, target: Path) -> None:
    target.unlink()
    if source.exists() or source.is_symlink():
        source.rename(target)
    if rng.random() < 0.08:
        damage.odd_place(rng, target)


def _archive(rng: random.Random, place: Place) -> bytes:
    root = "cifar-10-batches-bin"
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for number in range(3):
            member = tarfile.TarInfo(f"{root}/data_batch_{number}.bin")
            member.size = 3073
            way = rng.randrange(9) if number == 1 else 9
            if way == 0:
                member.name = rng.choice(("../out.bin", "/tmp/out.bin", f"{root}/../out.bin", f"{root}/a/b"))
            elif way <= 2:
                member.type, member.size = rng.choice((tarfile.SYMTYPE, tarfile.LNKTYPE)), 0
                member.linkname = rng.choice(("/etc/passwd", "../out"))
            elif way == 3:
                member.type, member.size = rng.choice((tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE)), 0
            elif way == 4:
                odd = rng.choice(damage.odd_texts(place.marker))[:300].encode("utf-8", "surrogatepass")
                member.name = f"{root}/" + odd.decode("utf-8", "surrogateescape")  # as tarfile writes names
            tar.addfile(member, BytesIO(place.bytes("data_batch.bin")[: member.size]))
    return damage.damaged_bytes(rng, out.getvalue()) if rng.random() < 0.5 else out.getvalue()


def _unpacked(archive: Path, folder: Path) -> object:
    from syno_lab.data.datasets import _unpack

    folder.mkdir()
    return _unpack(archive, "cifar-10-batches-bin", folder)


def checkpoints(rng: random.Random, place: Place) -> Opening:
    """Checkpoints of trainings."""
    import torch

    from syno_lab.training.checkpoint import load_checkpoint

    whole = place.bytes("checkpoint.pt")
    way = rng.randrange(10)
    if way <= 5:
        content = damage.damaged_bytes(rng, whole)
    elif way <= 8:
        try:
            content = damage.damaged_archive(rng, whole, place.marker)
        except Exception:  # noqa: BLE001 - it is no plain archive any more
            content = rng.choice(damage.payload_pickles(place.marker))
    else:
        content = rng.choice(damage.payload_pickles(place.marker))
    path = place.file(rng, "checkpoint.pt", content)
    return lambda: load_checkpoint(path, dict(SETTINGS), training_parts(), torch.device("cpu"))


def exports(rng: random.Random, place: Place) -> Opening:
    """Exported files, weights and libraries, read back."""
    from syno_lab import operators as known
    from syno_lab.codegen.export import load_weights, read_operator

    suffix = rng.choice(("onnx", "pt2", "pt2", "py", "safetensors", "so", "tar"))
    name = f"conv.{suffix}"
    whole = place.bytes(name)
    if suffix in ("so", "tar"):
        path = place.given / name
        path.write_bytes(whole if rng.random() < 0.8 else damage.damaged_bytes(rng, whole))
        beside = place.given / f"{name}.json"
        beside.write_bytes(
            damage.damaged_json(rng, place.json(f"{name}.json"), place.marker).encode("utf-8", "surrogatepass")
        )
        if rng.random() < 0.1:
            damage.odd_place(rng, rng.choice((path, beside)))
        return lambda: read_operator(path)
    if suffix == "py":
        text = damage.damaged_text(rng, whole.decode(), place.marker)
        if rng.random() < 0.3:
            text = f"import os\nos.mkdir({str(place.marker)!r})\n{text}"
        path = place.file(rng, name, text)
        return lambda: read_operator(path)
    if suffix == "pt2" and rng.random() < 0.5:
        content = damage.damaged_archive(rng, whole, place.marker)
    elif suffix == "safetensors" and rng.random() < 0.5:
        length = int.from_bytes(whole[:8], "little")
        head = damage.damaged_json(rng, json.loads(whole[8 : 8 + length]), place.marker).encode(
            "utf-8", "surrogatepass"
        )
        content = len(head).to_bytes(8, "little") + head + whole[8 + length :]
    else:
        content = damage.damaged_bytes(rng, whole)
    path = place.file(rng, name, content)
    if suffix == "safetensors" and rng.random() < 0.7:
        binding = BINDING if rng.random() < 0.5 else None
        return lambda: load_weights(known.conv2d(), path, binding)
    return lambda: read_operator(path)


FILES: dict[str, tuple[Callable[[random.Random, Place], Opening], int]] = {
    "operators": (operators, 1300),
    "sessions": (sessions, 1200),
    "specs": (specs, 1100),
    "stores": (stores, 1300),
    "records": (records, 1000),
    "data": (data, 1100),
    "checkpoints": (checkpoints, 700),
    "exports": (exports, 1000),
}
"""Surfaces of files by name, and how many inputs a whole run gives to each."""
