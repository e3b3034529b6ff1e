"""Trials: from a request to an outcome, the same every time, and an outcome whatever happens."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from small_trials import SMALL, small_trial
from torch.utils.flop_counter import FlopCounterMode

import syno_lab.trial.run as room
from syno_lab import operators
from syno_lab.data.datasets import load_dataset
from syno_lab.errors import DiskFullError, FormatError, SpecError
from syno_lab.jobs import JobFailed
from syno_lab.models.sites import Site
from syno_lab.models.slot import slots
from syno_lab.store.courses import CURVE_FILE, read_course
from syno_lab.trial import TrialOutcome, TrialRequest, costs_of, full_costs_of, places_of, run_trial, sites_of
from syno_lab.trial.backbone import build
from syno_lab.trial.job import run as run_job
from syno_lab.trial.meter import Meter

FIELDS_OF_TIME = {"wall_s", "cpu_s", "work_s", "peak_mib", "resumed"}


pytestmark = pytest.mark.usefixtures("one_thread")


asked = partial(small_trial, train_images=200, test_images=64, epochs=2)


def without_time(outcome: TrialOutcome) -> dict:
    content = {key: value for key, value in outcome.to_dict().items() if key not in FIELDS_OF_TIME}
    content["curve"] = [{key: value for key, value in row.items() if key != "seconds"} for row in content["curve"]]
    return content


def conv1x1() -> str:
    return operators.conv1x1().to_json()


# -- what a trial trains -----------------------------------------------------------------------------------------------


def test_equal_requests_give_equal_outcomes_to_the_bit(tmp_path):
    request = asked(operator=conv1x1(), keep_predictions=True)
    torch.manual_seed(1)
    first = run_trial(request, folder=tmp_path / "a")
    torch.manual_seed(2)
    before = torch.get_rng_state()
    second = run_trial(request, folder=tmp_path / "b")
    assert torch.equal(torch.get_rng_state(), before)
    assert first.state == "finished"
    assert without_time(first) == without_time(second)
    other = run_trial(msgspec.structs.replace(request, seed=1), folder=tmp_path / "c")
    assert without_time(first)["losses"] != without_time(other)["losses"]
    labels = load_dataset("digits", test_images=64).test_labels
    assert first.accuracy == np.mean(np.array(first.predictions) == labels)
    assert np.mean(first.losses) == pytest.approx(first.curve[-1]["test_loss"], rel=1e-5)
    assert first.versions["torch"] == str(torch.__version__)
    assert (first.threads, first.batch_size, first.device) == (1, 64, "cpu")
    assert first.wall_s > 0
    assert first.cpu_s > 0


def test_a_convolution_as_operator_with_the_same_weights_is_the_same_network():
    # Where a stride is 1; the others' pooling makes them another network.
    options = {**SMALL, "match": ["stage1.0.*", "stage?.0.conv2"]}
    original = build(asked(options=options))
    request = asked(options=options, operator=operators.conv2d().to_json())
    replaced = build(request)
    assert (replaced.replaced, replaced.places) == (4, 4)
    assert (replaced.flops, replaced.params) == (original.flops, original.params)
    weights = dict(original.module.named_parameters())
    for name, slot in slots(replaced.module):
        (kernel,) = slot.placeholder.parameters()
        with torch.no_grad():
            kernel.copy_(weights[f"{name}.weight"].permute(1, 2, 3, 0))  # [C_out, C_in, K, K] to [C_in, K, K, C_out]
    images = torch.rand(5, 1, 8, 8)
    original.module.eval()
    replaced.module.eval()
    torch.testing.assert_close(replaced.module(images), original.module(images))


def test_baseline_and_operator_begin_with_the_same_weights_elsewhere():
    original = dict(build(asked(seed=3)).module.named_parameters())
    replaced = dict(build(asked(seed=3, operator=conv1x1())).module.named_parameters())
    common = original.keys() & replaced.keys()
    assert {"conv.weight", "linear.weight", "stage2.0.bn1.weight"} <= common
    assert all(torch.equal(original[name], replaced[name]) for name in common)


def strided(request: TrialRequest) -> list[tuple[Site, int]]:
    """The layers with a stride that the request's operator replaces, and the stride."""
    names = {place.name for place in places_of(request) if place.replaced}
    return [(site, site.stride[0]) for site in sites_of(request) if site.name in names and site.stride[0] > 1]


@pytest.mark.parametrize("operator", [None, "conv1x1", "separable", "grouped"])
@pytest.mark.parametrize("resolution", [None, 12])
def test_costs_are_those_of_the_network_that_is_built(operator, resolution):
    text = None if operator is None else getattr(operators, operator)().to_json()
    request = asked(operator=text, resolution=resolution)
    network = build(request)
    flops, params = costs_of(request)
    assert params == network.params == sum(one.numel() for one in network.module.parameters())
    if operator in (None, "conv1x1"):  # for others torch has other ways to count than the lowering plan
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            network.module.eval()(torch.zeros(1, 1, 8, 8))
        # A module averages before it multiplies; the stated FLOPs are those of the operator at the layer's full size.
        pixels = [site.height * site.width - -(-site.height // s) * -(-site.width // s) for site, s in strided(request)]
        channels = [2 * site.in_channels * site.out_channels for site, _ in strided(request)]
        assert flops == counter.get_total_flops() + sum(p * c for p, c in zip(pixels, channels, strict=True))
    costs = full_costs_of(request)
    assert (costs.flops, costs.params) == (flops, params)
    assert (costs.baseline_flops, costs.baseline_params) == costs_of(asked(resolution=resolution))


def test_where_an_operator_does_not_fit_the_layer_stays_and_is_counted(tmp_path):
    # 16 groups divide the channels of the last stage's second convolution alone.
    request = asked(operator=operators.grouped().to_json(), options=SMALL | {"leave": []}, epochs=1)
    outcome = run_trial(request, folder=tmp_path)
    assert outcome.state == "finished"
    assert (outcome.replaced, outcome.places) == (6, 7)
    assert [place.name for place in places_of(request) if not place.replaced] == ["conv"]
    assert len(sites_of(request)) == 7


def test_a_precision_lowers_the_arithmetic_and_not_the_weights(tmp_path):
    losses = {}
    for precision in ("float32", "bfloat16", "float16"):
        outcome = run_trial(asked(precision=precision, epochs=1), folder=tmp_path / precision)
        assert outcome.state == "finished", outcome.reason
        losses[precision] = outcome.curve[0]["train_loss"]
    assert losses["bfloat16"] != losses["float32"]
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.05)
    assert losses["float16"] == pytest.approx(losses["float32"], rel=0.05)


# -- interruptions -----------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
import msgspec, torch
from syno_lab.trial import TrialRequest, run_trial
torch.set_num_threads(1)
def report(fraction, message):
    if message.startswith("epoch 2 of 3: loss"):
        os.kill(os.getpid(), signal.SIGKILL)
run_trial(msgspec.json.decode(sys.argv[1], type=TrialRequest), folder=Path(sys.argv[2]), report=report)
"""


@pytest.mark.warm
def test_a_killed_trial_goes_on_to_the_outcome_of_one_that_was_not(tmp_path):
    request = asked(operator=conv1x1(), epochs=3, keep_predictions=True)
    text = msgspec.json.encode(request).decode()
    child = subprocess.run([sys.executable, "-c", KILLED, text, str(tmp_path / "a")], check=False, timeout=120)
    assert child.returncode == -signal.SIGKILL
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["checkpoint-64.pt", CURVE_FILE]
    so_far = read_course(tmp_path / "a" / CURVE_FILE)
    said = []
    resumed = run_trial(request, folder=tmp_path / "a", report=lambda fraction, message: said.append(message))
    assert "resumed from a checkpoint after epoch 1 of 3" in said
    assert resumed.resumed == 1
    whole = run_trial(request, folder=tmp_path / "b")
    assert whole.resumed == 0
    assert without_time(resumed) == without_time(whole)
    assert so_far == resumed.curve[:1], "a course that is shown is the outcome's"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["outcome.json"]


def test_an_outcome_that_is_there_is_not_worked_out_again(tmp_path):
    request = asked(epochs=1)
    first = run_trial(request, folder=tmp_path)
    said = []
    again = run_trial(request, folder=tmp_path, report=lambda fraction, message: said.append(message))
    assert again == first
    assert said == ["finished in an earlier attempt"]
    other = run_trial(asked(epochs=1, seed=1), folder=tmp_path)
    assert other.seed == 1
    (tmp_path / "outcome.json").write_text("{")
    assert without_time(run_trial(request, folder=tmp_path)) == without_time(first)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_trial_that_is_stopped_goes_on_later(tmp_path, precision):
    request = asked(precision=precision)
    assert run_trial(request, folder=tmp_path, should_stop=lambda: True).state == "interrupted"
    said = [(0.0, "")]

    def report(fraction: float, message: str) -> None:
        said.append((fraction, message))

    stopped = run_trial(
        request, folder=tmp_path, report=report, should_stop=lambda: said[-1][1].startswith("epoch 2 of 2: loss")
    )
    assert (stopped.state, stopped.reason, len(stopped.curve)) == ("interrupted", "stopped on request", 1)
    assert not (tmp_path / "outcome.json").exists()
    fractions = [fraction for fraction, _ in said[:-1]]
    assert fractions == sorted(fractions)
    resumed = run_trial(request, folder=tmp_path)
    assert without_time(resumed) == without_time(run_trial(request, folder=tmp_path / "whole"))
    assert resumed.wall_s > stopped.curve[0]["seconds"]


# -- how trials end ----------------------------------------------------------------------------------------------------


def test_a_trial_that_falls_behind_is_pruned(tmp_path):
    request = asked(epochs=4, stopping={"rule": "canvas"}, rivals=[[1.0, 1.0, 1.0, 1.0]])
    outcome = run_trial(request, folder=tmp_path / "a")
    assert outcome.state == "pruned"
    assert len(outcome.curve) == 1
    assert "after epoch 1 of 4, below 0.625 of the best's 1.0000" in outcome.reason
    assert outcome.accuracy == outcome.curve[0]["accuracy"]
    kind = msgspec.structs.replace(request, rivals=[[0.01, 0.01, 0.01, 0.01]])
    assert run_trial(kind, folder=tmp_path / "b").state == "finished"


def test_a_pruned_trial_is_pruned_after_a_resumption_too(tmp_path):
    request = asked(epochs=3, stopping={"rule": "canvas"}, rivals=[[1.0, 1.0, 1.0]])
    saved = tmp_path / "checkpoint-64.pt"
    # Killed after the checkpoint and before the verdict.
    stopped = run_trial(request, folder=tmp_path, should_stop=saved.exists)
    assert stopped.state == "pruned"
    free = msgspec.structs.replace(request, stopping=None)
    run_trial(free, folder=tmp_path / "b", should_stop=(tmp_path / "b" / "checkpoint-64.pt").exists)
    assert (tmp_path / "b" / "checkpoint-64.pt").exists()
    resumed = run_trial(request, folder=tmp_path / "b")
    assert (resumed.state, resumed.resumed, len(resumed.curve)) == ("pruned", 1, 1)


def test_a_trial_that_diverges_says_so(tmp_path):
    outcome = run_trial(asked(learning_rate=1e30), folder=tmp_path)
    assert outcome.state == "diverged"
    assert "expected finite gradients in epoch 1" in outcome.reason or "expected a finite loss" in outcome.reason
    assert outcome.accuracy is None
    json.dumps(outcome.to_dict(), allow_nan=False)


def test_a_trial_without_gradients_has_diverged(tmp_path, monkeypatch):
    built = room.build

    def dead(request):
        network = built(request)
        torch.nn.init.zeros_(network.module.linear.weight)
        network.module.linear.weight.requires_grad_(False)
        network.module.linear.bias.requires_grad_(False)
        return network

    monkeypatch.setattr(room, "build", dead)
    outcome = run_trial(asked(), folder=tmp_path)
    assert outcome.state == "diverged"
    assert "found nothing but zeros in 3 batches in a row" in outcome.reason


def test_a_trial_that_takes_too_long_is_a_timeout(tmp_path):
    outcome = run_trial(asked(epochs=100_000, time_limit_s=0.2), folder=tmp_path / "a")
    assert (outcome.state, outcome.reason) == ("timeout", "its time of 0.2 s was over")
    assert outcome.accuracy == outcome.curve[-1]["accuracy"]
    sooner = run_trial(asked(epochs=100_000, time_limit_s=0.2, budget_s=9.0), folder=tmp_path / "b")
    assert sooner.state == "timeout"
    meant = run_trial(asked(epochs=100_000, time_limit_s=9.0, budget_s=0.2), folder=tmp_path / "c")
    assert (meant.state, meant.reason) == ("finished", "")
    hopeless = run_trial(asked(epochs=1_000_000, time_limit_s=60.0, gives_up=True), folder=tmp_path / "d")
    assert hopeless.state == "timeout"
    assert re.fullmatch(r"projected \S+ s of 60 s allowed, after \d+ of \d+ batches", hopeless.reason)
    assert hopeless.wall_s < 60
    budget = run_trial(asked(epochs=100_000, budget_s=0.2, gives_up=True), folder=tmp_path / "e")
    assert (budget.state, budget.reason) == ("finished", "")


def hungry(monkeypatch, error: Exception, most: int) -> list[int]:
    """Let trainings with a batch above ``most`` end in ``error``; what they are tried with is in the list."""
    trained, sizes = room.train, []

    def train(module, data, **arguments):
        sizes.append(arguments["batch_size"])
        if arguments["batch_size"] > most:
            raise error
        return trained(module, data, **arguments)

    monkeypatch.setattr(room, "train", train)
    return sizes


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_out_of_memory_is_tried_once_more_with_half_the_batch(tmp_path, monkeypatch, error):
    sizes = hungry(monkeypatch, error, most=32)
    outcome = run_trial(asked(epochs=1), folder=tmp_path)
    assert (outcome.state, outcome.batch_size, sizes) == ("finished", 32, [64, 32])
    assert outcome.reason == "out of memory with a batch of 64, so trained with one of 32"


def test_out_of_memory_twice_is_the_end_of_it_for_today(tmp_path, monkeypatch):
    sizes = hungry(monkeypatch, MemoryError(), most=16)
    outcome = run_trial(asked(), folder=tmp_path / "b")
    assert (outcome.state, outcome.accuracy, sizes) == ("oom", None, [64, 32])
    assert outcome.reason.startswith("out of memory with a batch of 64, so trained with one of 32; ")
    sizes.clear()
    assert run_trial(asked(retry_oom=False), folder=tmp_path / "c").state == "oom"
    assert sizes == [64]
    monkeypatch.undo()
    assert run_trial(asked(), folder=tmp_path / "b").state == "finished"  # another day there is more memory


LIMITED = """
import resource, sys
from pathlib import Path
import msgspec, torch
from syno_lab.trial import TrialRequest, run_trial
torch.set_num_threads(1)
torch.optim.SGD(torch.nn.Conv2d(1, 1, 3).parameters())  # loads much
now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + (400 << 20), resource.RLIM_INFINITY))
big = dict(backbone="resnet20", options={"width": 16, "blocks": 1}, resolution=320, train_images=128, test_images=32)
outcome = run_trial(TrialRequest(**big, epochs=1, batch_size=128), folder=Path(sys.argv[1]) / "big")
print(outcome.state, "|", outcome.reason)
small = TrialRequest(backbone="resnet20", options={"width": 4, "blocks": 1}, train_images=64, test_images=64, epochs=1)
print(run_trial(small, folder=Path(sys.argv[1]) / "small").state)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the process's size from /proc")
def test_a_process_that_may_not_grow_runs_out_of_memory_and_goes_on(tmp_path):
    child = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    lines = child.stdout.splitlines()
    assert child.returncode == 0, child.stderr
    assert lines[0].startswith("oom | out of memory with a batch of 128, so trained with one of 64; ")
    # The memory is free again: another trial in the same process has all it needs.
    assert lines[-1] == "finished"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backbone": "resnet21"}, "expected the name of a backbone, found 'resnet21'; did you mean resnet20"),
        ({"backbone": "gpt_tiny", "options": {}}, "expected text for the backbone gpt_tiny, found images"),
        ({"options": {"depth": 2}}, "options of resnet20: expected some of width, blocks, strides"),
        ({"options": {"width": 0}}, "width"),
        ({"options": {"strides": "skip"}}, "strides: expected 'pool' or 'shape', found 'skip'"),
        ({"options": {"match": "conv1"}}, "match: expected a list of patterns of names, found 'conv1'"),
        ({"options": {"match": ["nothing"]}}, "expected something to replace in this CifarResNet"),
        ({"operator": "{"}, "JSON"),
        ({"operator": operators.matmul().to_json()}, "expected an operator that fits some of 6 layers of resnet20"),
        ({"data": "/nowhere"}, "expected a data folder at /nowhere, found nothing there"),
        ({"resolution": 0}, "resolution: expected a whole number from 1 up, found 0"),
        ({"train_images": 0}, "expected train_images as a whole number from 1 up, found 0"),
        ({"epochs": 0}, "expected epochs as a whole number from 1 up, found 0"),
        ({"time_limit_s": -1.0}, "expected time_limit_s as a number above 0"),
        ({"device": "toaster"}, "expected a device of this machine such as 'cpu', found 'toaster'"),
        ({"stopping": {"rule": "luck"}}, "stopping: expected a rule among canvas"),
        ({"threads": 0}, "expected threads as a whole number from 1 up, found 0"),
    ],
)
def test_a_request_that_cannot_be_done_has_failed_with_the_reason(tmp_path, changes, message):
    outcome = run_trial(asked(**changes), folder=tmp_path)
    assert outcome.state == "failed"
    assert message in outcome.reason
    assert "\n" not in outcome.reason
    assert not (tmp_path / "outcome.json").exists()


def test_a_full_disk_is_no_outcome_and_a_job_waits_for_room(tmp_path, monkeypatch):
    """What writes there is no room for: no file of this process may have a byte until the job has said so."""
    from syno_lab.trial import job

    pytest.importorskip("sklearn.datasets")  # the digits' reader, which makes a file as it is loaded
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    monkeypatch.setattr(job, "RETRY_S", 0.01)
    waited = []

    def log(line: str) -> None:
        if "no room to write" in line:
            waited.append(line)
            if len(waited) == 2:
                resource.setrlimit(resource.RLIMIT_FSIZE, limit)

    notes = Notes(tmp_path / "job")
    monkeypatch.setattr(notes, "log", log)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
        with pytest.raises(DiskFullError, match=r"no room to write .*checkpoint-64\.pt \(File too large\): free some"):
            run_trial(asked(), folder=tmp_path / "alone")
        found = run_job(asked().to_dict(), notes)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert len(waited) == 2
    assert waited[0].startswith("waits for free disk space: ")
    alone = run_trial(asked(), folder=tmp_path / "alone")
    assert without_time(TrialOutcome.from_dict(found)) == without_time(alone)
    assert alone.state == "finished"


def test_a_text_has_no_resolution_and_a_dropout_is_a_share(tmp_path):
    text = tmp_path / "t.txt"
    text.write_text("abc" * 500)
    one = run_trial(TrialRequest(backbone="gpt_tiny", data=str(text), resolution=8), folder=tmp_path / "a")
    assert "expected no resolution for a text, found 8" in one.reason
    two = TrialRequest(backbone="gpt_tiny", data=str(text), options={"dropout": 1.5})
    assert "dropout: expected a number from 0 to below 1" in run_trial(two, folder=tmp_path / "b").reason
    three = TrialRequest(backbone="gpt_tiny", data=str(text), options={"context": "x"})
    assert "context: expected a whole number from 1 up" in run_trial(three, folder=tmp_path / "c").reason
    with pytest.raises(SpecError, match="expected images for the backbone resnet20, found text"):
        costs_of(TrialRequest(backbone="resnet20", data=str(text)))


def test_what_torch_refuses_is_a_reason_and_not_an_exception(tmp_path):
    # One image of one pixel has no variance to normalise by.
    outcome = run_trial(asked(batch_size=1, resolution=4), folder=tmp_path)
    assert outcome.state == "failed"
    assert outcome.reason.startswith(
        "the network: network.stage3.0.bn1: ValueError: Expected more than 1 value per channel"
    )


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    outcome = run_trial(asked(), folder=tmp_path / "file" / "below")
    assert outcome.state == "failed"
    assert "expected to write" in outcome.reason


def test_a_bug_is_no_outcome(tmp_path, monkeypatch):
    def broken(request):
        raise ZeroDivisionError

    monkeypatch.setattr(room, "build", broken)
    with pytest.raises(ZeroDivisionError):
        run_trial(asked(), folder=tmp_path)


# -- plain data --------------------------------------------------------------------------------------------------------


def test_requests_and_outcomes_are_plain_data(tmp_path):
    request = asked(operator=conv1x1(), stopping={"rule": "canvas"}, rivals=[[0.01, 0.02]])
    assert TrialRequest.from_dict(json.loads(json.dumps(request.to_dict()))) == request
    outcome = run_trial(request, folder=tmp_path)
    assert TrialOutcome.from_dict(json.loads(json.dumps(outcome.to_dict(), allow_nan=False))) == outcome
    with pytest.raises(FormatError, match=r"expected a trial's request, found: .*unknown field `depth`"):
        TrialRequest.from_dict({**request.to_dict(), "depth": 2})
    with pytest.raises(FormatError, match="expected a trial's request, found: Expected `int`"):
        TrialRequest.from_dict({**request.to_dict(), "epochs": "many"})
    with pytest.raises(FormatError, match="expected a trial's outcome, found: Invalid enum value 'tired'"):
        TrialOutcome.from_dict({**outcome.to_dict(), "state": "tired"})


@dataclass
class Notes:
    """What the job of a trial is handed."""

    folder: Path
    lines: list[str] = field(default_factory=list)
    fractions: list[float] = field(default_factory=list)

    def report(self, fraction: float, message: str = "") -> None:
        self.fractions.append(fraction)

    def should_stop(self) -> bool:
        return False

    def log(self, line: str) -> None:
        self.lines.append(line)


def test_the_job_forwards(tmp_path):
    notes = Notes(tmp_path / "job")
    request = asked(operator=conv1x1())
    outcome = TrialOutcome.from_dict(run_job(request.to_dict(), notes))
    assert without_time(outcome) == without_time(run_trial(request, folder=tmp_path / "own"))
    assert notes.fractions[-1] == 1.0
    assert notes.lines[-1].startswith("finished, accuracy 0.")
    assert not any(line.startswith("epoch") for line in notes.lines)
    with pytest.raises(JobFailed, match="expected a trial's request, found: Object missing required field `backbone`"):
        run_job({}, notes)


def test_a_meter_sees_what_was_taken_and_forgets_it(tmp_path):
    with Meter() as meter:
        block = np.ones(100 << 20, dtype=np.uint8)
        del block
    assert 95 < meter.peak_mib < 160
    assert meter.wall_s > 0
    if Path("/proc/self/clear_refs").exists():
        with Meter() as second:
            assert np.ones(10, dtype=np.uint8).sum() == 10
        assert second.peak_mib < 50
