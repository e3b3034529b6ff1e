"""What the command does where a user's functions hang, fork, end the process or print without end: in real processes.

Each harm is put into a network or a data set, and `syno-lab search` is asked to search with it: in its own process and
by jobs. The command must end within its time with status 2 and one line at the end that names the user's file or says
what happened, or finish as if nothing were; where the user's code hangs in the command's own process, a line must say
so, and Ctrl-C must end it. It must not leave a process, and the lab must be readable afterwards.

    python benchmarks/harms.py
    python benchmarks/harms.py --only hang-in-forward
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from common import about, parser, save, say, typed
from kills import MARK, LostError, all_ended

LIMIT_S = 150.0
#: What hangs in the command's own process must be told of by then, and end with Ctrl-C.
_TOLD_S, _ENDS_S = 45.0, 30.0
FILE = """
import ctypes, os, signal, subprocess, sys, threading, time
import torch
from torch import nn
from torch.utils.data import TensorDataset
{import_}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        {forward}
        return self.head(self.b(self.a(x).relu()).mean((2, 3)))

def make_model():
    {model}
    return Net()

class Examples(TensorDataset):
    def __getitem__(self, index):
        {item}
        return super().__getitem__(index)

def make_dataset():
    {data}
    classes = torch.arange(64) % 4
    images = torch.randn(64, 3, 8, 8) + classes[:, None, None, None]
    return Examples(images, classes), Examples(images[:32], classes[:32])
"""
#: By name: the place and the statement; those that change nothing must let the search come to its end.
HARMS: dict[str, tuple[str, str]] = {
    "exit-in-forward": ("forward", "os._exit(0)"),
    "exit-in-item": ("item", "os._exit(7)"),
    "exit-at-import": ("import_", "os._exit(0)"),
    "kill-in-forward": ("forward", "os.kill(os.getpid(), signal.SIGKILL)"),
    "terminate-in-forward": ("forward", "os.kill(os.getpid(), signal.SIGTERM)"),
    "crash-in-forward": ("forward", "ctypes.string_at(0)"),
    "abort-in-item": ("item", "os.abort()"),
    "sys-exit-in-forward": ("forward", "sys.exit('the end')"),
    "hang-in-forward": ("forward", "time.sleep(10**6)"),
    "spin-in-training": ("forward", "while self.training: pass"),
    "hang-in-item": ("item", "time.sleep(10**6)"),
    "hang-in-model": ("model", "time.sleep(10**6)"),
    "hang-at-import": ("import_", "time.sleep(10**6)"),
    "print-in-forward": ("forward", "self.training and print('x' * 5_000_000)"),
    "fork-in-model": ("model", "os.fork()"),
    "child-in-forward": ("forward", "subprocess.Popen(['sleep', '1000'])"),
    "thread-in-model": ("model", "threading.Thread(target=time.sleep, args=(60,)).start()"),  # Python waits for it
    "close-in-forward": ("forward", "os.closerange(0, 3)"),
    "ignore-signals": ("import_", "[signal.signal(one, signal.SIG_IGN) for one in (signal.SIGTERM, signal.SIGINT)]"),
    "change-folder": ("model", "os.chdir('/')"),
    "remove-itself": ("model", "os.path.exists(__file__) and os.remove(__file__)"),
    "no-stdout": ("import_", "sys.stdout = sys.stderr = None"),
    "threads": ("model", "torch.set_num_threads(7)"),
    "deterministic": ("model", "torch.use_deterministic_algorithms(True)"),
    "default-dtype": ("model", "torch.set_default_dtype(torch.float64)"),
    "no-grad-for-ever": ("import_", "torch.set_grad_enabled(False)"),
}
HANGS = ("hang", "spin")
INTERRUPTED = 130  # a command's status after Ctrl-C
_PLACES = ("import_", "forward", "model", "item", "data")


def tried(name: str, is_in_process: bool, folder: Path) -> dict[str, Any]:
    """What became of a command whose user's file does this harm. Raises LostError where it is not fine."""
    from syno_lab.store import Store

    place, statement = HARMS[name]
    (folder / "net.py").write_text(FILE.format_map(dict.fromkeys(_PLACES, "pass") | {place: statement}))
    words = "search --model net.py:make_model --dataset net.py:make_dataset --minutes 0.3 --epochs 1 --seeds 2 --anyway"
    mark, begun = uuid.uuid4().hex, time.monotonic()
    child = subprocess.Popen(
        [
            Path(sys.executable).with_name("syno-lab"),
            *words.split(),
            *(["--in-process"] if is_in_process else []),
            "--folder",
            "lab",
        ],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="backslashreplace",
        env={**os.environ, MARK: mark, "OMP_NUM_THREADS": "1"},
    )
    is_late, hangs = False, name.startswith(HANGS)
    try:
        out, _ = child.communicate(timeout=_TOLD_S if hangs else LIMIT_S)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGINT if hangs else signal.SIGKILL)
        try:
            out, _ = child.communicate(timeout=_ENDS_S)
        except subprocess.TimeoutExpired:
            child.kill()
            out, _ = child.communicate()
        is_late = not hangs or child.returncode != INTERRUPTED or "; Ctrl-C ends it" not in out
    last = (out.strip().splitlines() or [""])[-1][:300]
    found = {"status": child.returncode, "said": last, "seconds": round(time.monotonic() - begun, 1)}
    say(f"{name}{' in the process' if is_in_process else ''}: {found}")
    if is_late:
        raise LostError(f"{name}: still at work after {found['seconds']:.0f} s: {last}")
    if "Traceback (most recent call last)" in out or "fault of Syno Lab" in out:
        raise LostError(f"{name}: {out[-600:]}")
    # Where it is tried it ends us, or takes what we say with.
    own = name.startswith(("exit", "kill", "terminate", "crash", "abort", "close"))
    if not own and child.returncode not in (0, 2, *([INTERRUPTED] if hangs else [])):
        raise LostError(f"{name}: status {child.returncode}: {last}")
    if not is_in_process:  # its workers stay for the next command
        stop = [Path(sys.executable).with_name("syno-lab"), "jobs", "stop", "--folder", "lab"]
        subprocess.run(stop, cwd=folder, capture_output=True, timeout=60, check=False)
    all_ended(mark)
    if (folder / "lab" / "results.sqlite").exists():
        with Store.look(folder / "lab") as store:
            [search.trials() for search in store.searches()]
    return found


def main() -> None:
    """Run and save."""
    options = parser(__doc__ or "")
    options.add_argument("--only", choices=list(HARMS))
    given = options.parse_args()
    names = [given.only] if given.only else list(HARMS)
    order = [(name, is_in_process) for name in names for is_in_process in (True, False)]
    random.Random(0).shuffle(order)
    rows, losses = [], []
    for name, is_in_process in order:
        with tempfile.TemporaryDirectory(prefix="harms-") as folder:
            try:
                found = tried(name, is_in_process, Path(folder))
                rows.append({"harm": name, "in_process": is_in_process, **found})
            except LostError as loss:
                losses.append(str(loss))
                say(f"LOSS {loss}")
    if given.only is None and not losses:
        save("harms", {"about": about(typed(), given.core), "rows": rows})
    if losses:
        sys.exit(f"{len(losses)} losses: see above")


if __name__ == "__main__":
    main()
