"""The magics for jobs: cells submit by the command line's own options and end at once; errors are one line."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from syno_widgets.attached import AttachedLab
from syno_widgets.jobs_view import JobsView
from traitlets.config import Config

from syno_lab.errors import StoreError
from syno_lab.jobs import JobHandle, Lab
from syno_lab.trial import TrialRequest

WITHIN_S = 200.0
SMALL = "--epochs 1 --train-images 32 --test-images 16 --width 4 --batch-size 16"


@pytest.fixture(scope="module")
def shell(lab: Lab) -> Iterator[Any]:
    """A shell with the extension, in the lab of the fixture."""
    made = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    made.run_line_magic("load_ext", "syno_lab")
    yield made
    made.run_line_magic("unload_ext", "syno_lab")
    InteractiveShell.clear_instance()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


def cancelled(lab: Lab, *handles: JobHandle) -> list[TrialRequest]:
    """What was asked for; it need not be done here."""
    for handle in handles:
        lab.job(handle.id).cancel()
    return [TrialRequest.from_dict(handle.record().params) for handle in handles]


def test_lab_is_attached_by_name(shell: Any, lab: Lab) -> None:
    assert isinstance(shell.user_ns["lab"], AttachedLab)
    assert shell.user_ns["lab"].folder == lab.folder
    assert shell.run_line_magic("syno", "lab") is shell.user_ns["lab"]
    assert repr(shell.user_ns["lab"]) == f"<the lab in {lab.folder}>"
    assert shell.user_ns["lab"].jobs() == lab.jobs()
    assert {"submit", "jobs", "job"} <= set(dir(shell.user_ns["lab"]))
    with pytest.raises(AttributeError, match="_repr_html_"):
        _ = shell.user_ns["lab"]._repr_html_


def test_a_cell_takes_the_command_s_options_in_any_lines(shell: Any, lab: Lab) -> None:
    one = shell.run_cell_magic("syno", f"train baseline {SMALL}", "--seed 4")
    body = "baseline   # the network as it is\n--seed 4 \\\n  --epochs 1\n" + SMALL.replace(" --", "\n--")
    many = shell.run_cell_magic("syno", "train", body)
    line = shell.run_line_magic("syno", f"train baseline {SMALL} --seed 4")
    assert isinstance(one, JobHandle)
    assert repr(one).startswith(f"JobHandle({one.id}, 'train', ")
    first, *others = cancelled(lab, one, many, line)
    assert (first.seed, first.epochs, first.train_images, first.operator) == (4, 1, 32, None)
    assert others == [first, first]


def test_variables_of_the_notebook_are_put_in(shell: Any, lab: Lab) -> None:
    shell.push({"chosen": 7, "name": "baseline"})
    both = shell.run_cell_magic("syno", "train {name} --seeds 2", f"{SMALL}\n--seed {{chosen}}")
    assert [request.seed for request in cancelled(lab, *both)] == [7, 8]
    assert [handle.record().name for handle in both] == ["baseline, seed 7", "baseline, seed 8"]


def test_help_submits_nothing(shell: Any, lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    before = len(lab.jobs())
    assert shell.run_line_magic("syno", "train --help") is None
    assert "--learning-rate" in capsys.readouterr().out
    assert len(lab.jobs()) == before


def test_jobs_are_steered_by_lines(shell: Any, lab: Lab, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = lab.submit("gate", {"gate": str(gate)})

    def said(line: str) -> str:
        assert shell.run_line_magic("syno", line) is None
        return capsys.readouterr().out

    assert "paus" in said(f"pause {job.id}")
    deadline = time.monotonic() + WITHIN_S
    while job.record().state != "paused":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert f"{job.id} " in said("list --state paused")
    said(f"resume {job.id}")
    gate.write_text("open")
    job.wait(WITHIN_S)
    assert '"read":"open"' in said(f"show {job.id}")
    assert "waiting for gate" in said(f"log {job.id}")
    failed = lab.submit("end", {"how": "give up"})
    failed.wait(WITHIN_S)
    assert re.search(rf"\n{failed.id} +end +(waiting|running) ", said(f"retry {failed.id}")), "it may run already"
    assert failed.wait(WITHIN_S).attempt == 2
    waiting = lab.submit("nothing", {}, after=[lab.submit("gate", {"gate": str(gate / "never")}).id])
    assert "cancelled" in said(f"cancel {waiting.id}")
    lab.job(waiting.id - 1).cancel()
    assert lab.job(waiting.id - 1).wait(WITHIN_S).is_ended


def test_a_lab_that_was_stopped_works_again(
    shell: Any, lab: Lab, gate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, table = shell.user_ns["lab"], shell.run_line_magic("syno", "jobs")
    job = mine.submit("gate", {"gate": str(gate)})
    shell.run_line_magic("syno", "stop")
    assert f"jobs on hold: {job.id}\n" in capsys.readouterr().out
    assert mine.job(job.id).record().state == "paused"
    gate.write_text("open")
    shell.run_line_magic("syno", f"resume {job.id}")
    assert mine.job(job.id).wait(WITHIN_S).state == "finished"
    table.refresh()
    assert table.rows[0]["state"] == "finished"


def test_the_table_is_one(shell: Any, lab: Lab) -> None:
    first = shell.run_line_magic("syno", "jobs")
    assert isinstance(first, JobsView)
    assert shell.run_line_magic("syno", "jobs") is first
    assert [row["job"] for row in first.rows] == [job.id for job in reversed(lab.jobs())][:50]


@pytest.mark.parametrize(
    ("line", "cell", "said"),
    [
        ("cancel 7777", None, "no job 7777 in "),
        ("cancel", None, "Missing argument"),
        ("cancel one", None, "Invalid value for 'JOB…'"),
        ("jobs 3", None, "unknown operator 'jobs 3'; known are matmul"),
        ("conv2d 3", None, "unknown operator 'conv2d 3'"),
        ("show 1 --folder x", None, "--folder: this notebook has its own lab"),
        ("train conv2d --json x", None, "--json: a cell submits a job and gives its handle; leave the option out"),
        ("train", "\n", "Missing argument"),
        ("train conv9d", None, "found 'conv9d'; did you mean conv1d?"),
        ("train conv2d", "--epochs none", "Invalid value for '--epochs'"),
        ("train conv2d", "--data 'x", "No closing quotation"),
        ("train conv2d", "x" * 40_000, "expected at most 32768 characters, found 40000"),
        ("train conv2d", "--data /nowhere", "/nowhere"),
        ("jobs", "\n", "expected search, train, tune behind it, found 'jobs'"),
        ("train conv2d", "", "the cell body is empty. Did you mean the line magic %syno"),  # IPython's own
        ("", "conv2d", "expected search, train, tune behind it; "),
    ],
)
def test_bad_input_is_one_line_and_submits_nothing(
    shell: Any, lab: Lab, line: str, cell: str | None, said: str
) -> None:
    before = len(lab.jobs())
    with pytest.raises(UsageError) as caught:
        shell.run_line_magic("syno", line) if cell is None else shell.run_cell_magic("syno", line, cell)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(lab.jobs()) == before


def test_a_lab_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Any) -> None:
    (tmp_path / "results.sqlite").write_text("no store")
    monkeypatch.setenv("SYNO_LAB_FOLDER", str(tmp_path))
    broken = AttachedLab()
    magics = shell.magics_manager.registry["SynoMagics"]
    monkeypatch.setattr(magics, "lab", broken)
    for words in ("jobs", "list", "train conv2d"):
        with pytest.raises(UsageError, match="is damaged or no Syno Lab store"):
            shell.run_line_magic("syno", words)
    broken.open_soon()  # in the background: says nothing, and what is asked later says it
    with pytest.raises(StoreError, match="is damaged or no Syno Lab store"):
        broken.jobs()


def test_unloading_leaves_a_name_of_one_s_own(lab: Lab) -> None:
    shell = InteractiveShell.instance()
    shell.run_line_magic("unload_ext", "syno_lab")
    assert "lab" not in shell.user_ns
    assert lab.jobs() == lab.jobs(), "the lab of others stays open"
    shell.push({"lab": 3})
    with capture_output():
        shell.run_line_magic("load_ext", "syno_lab")
    assert shell.user_ns["lab"] == 3
    shell.run_line_magic("unload_ext", "syno_lab")
    assert shell.user_ns["lab"] == 3
    del shell.user_ns["lab"]
    shell.run_line_magic("load_ext", "syno_lab")


class TestValues:
    """``{name}`` is one word, or a part of one, whatever is in it: no value becomes another option."""

    D = "a b --seed 5"
    HOSTILE = "/a folder/--seed 5' \"\n# $HOME {0}"

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("train --data {d}", ["train", "--data", HOSTILE]),
            ("train --data={d} --out '{d}'", ["train", f"--data={HOSTILE}", "--out", HOSTILE]),
            ("--json {d}/x.json # {d}", ["--json", f"{HOSTILE}/x.json"]),
            ("{d}{d} $n", [HOSTILE * 2, "7"]),
            ("{n + 1} {'a b'!r} {list(range(3))[1:]} {{n}}", ["8", "'a b'", "[1, 2]", "{n}"]),
            ("$n.real 'is $n' \"{nowhere", ["$n.real", "is $n", '"{nowhere']),
            ("{n} {nowhere} a\\\n b", ["{n}", "{nowhere}", "a", "b"]),
        ],
    )
    def test_words(self, line: str, expected: list[str]) -> None:
        from syno_widgets.magics import _words

        names = {"d": self.HOSTILE, "n": 7}
        if line.count('"') % 2:
            with pytest.raises(UsageError, match="No closing quotation in"):
                _words(line, names)
        else:
            assert _words(line, names) == expected

    def test_lines_cells_and_functions(self, shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[tuple[str, ...]] = []
        monkeypatch.setattr("syno_lab.cli.main", lambda words: seen.append(tuple(words)) or 0)  # type: ignore[func-returns-value]
        shell.push({"d": self.D})
        shell.run_line_magic("syno", "show {d}")
        shell.run_cell_magic("syno", "train {d} --help", "--data {d}\n--json-{d}")
        done = shell.run_cell("def steer(d):\n    %syno cancel {d}\nsteer('c d')")
        assert done.success, done.error_in_exec
        assert seen == [
            ("jobs", "show", self.D),
            ("train", "--detach", "--json", "-", self.D, "--help", "--data", self.D, f"--json-{self.D}"),
            ("jobs", "cancel", "c d"),
        ]


@pytest.mark.parametrize("how", ["cancel 3", "lab.table", "card"])
def test_a_fault_is_one_line_and_its_traceback_can_be_had(
    shell: Any, how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fault(*_: object, **__: object) -> None:
        raise RuntimeError("two\nlines\x1b[2J")

    magic, line = {"cancel 3": ("syno", "cancel 3"), "lab.table": ("syno", "jobs"), "card": ("syno_card", "MERGE")}[how]
    monkeypatch.setattr("syno_lab.commands.jobs.use_lab", fault)
    monkeypatch.setattr(AttachedLab, "table", fault)
    monkeypatch.setattr("syno_lab.codegen.drawing.card_svg", fault)
    with pytest.raises(UsageError) as told:
        shell.run_line_magic(magic, line)
    assert str(told.value).startswith("RuntimeError: two lines\N{REPLACEMENT CHARACTER}[2J (a fault of Syno Lab")
    assert "\n" not in str(told.value)
    with pytest.raises((UsageError, RuntimeError)) as told:
        shell.run_line_magic(magic, f"--traceback {line}")
    assert isinstance(told.value, RuntimeError) or "in fault" in capsys.readouterr().err
