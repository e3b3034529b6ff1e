"""Checkpoints: each flipped bit is seen, a job with a damaged one starts anew."""

import random
from pathlib import Path

import pytest
import torch
from small_trials import small_trial
from torch import nn

from syno_lab.errors import TrainingError
from syno_lab.training.checkpoint import Standing, Trained, load_checkpoint, save_checkpoint
from syno_lab.training.records import EpochRecord
from syno_lab.trial import TrialOutcome, run_trial

CPU = torch.device("cpu")
SETTINGS = {"epochs": 3, "seed": 7}
STANDING = Standing([EpochRecord(1, 2.0, 1.5, 0.5, 0.1)], 1.75, 3.0, 2.0, 1.5)


def trained(seed: int) -> Trained:
    torch.manual_seed(seed)
    module = nn.Linear(16, 8)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    module(torch.ones(1, 16)).sum().backward()
    optimizer.step()
    return Trained(module, optimizer, torch.amp.GradScaler("cpu", enabled=False))


@pytest.fixture
def saved(tmp_path) -> Path:
    save_checkpoint(tmp_path / "c.pt", SETTINGS, trained(0), STANDING)
    return tmp_path / "c.pt"


def test_what_was_written_is_read_back(saved):
    other = trained(1)
    assert load_checkpoint(saved, SETTINGS, other, CPU) == STANDING
    assert torch.equal(other.module.weight, trained(0).module.weight)


def test_every_flipped_bit_is_refused_and_changes_nothing(saved):
    whole, draw = bytearray(saved.read_bytes()), random.Random(0)
    # The first bytes are the header's; the rest are drawn, as many of them in the tensors as their share is.
    for place in [*range(0, 100, 9), *(draw.randrange(len(whole)) for _ in range(40))]:
        changed = bytearray(whole)
        changed[place] ^= 1 << draw.randrange(8)
        saved.write_bytes(changed)
        other = trained(1)
        with pytest.raises(TrainingError, match=r"expected a checkpoint in .*; delete") as refusal:
            load_checkpoint(saved, SETTINGS, other, CPU)
        assert "\n" not in str(refusal.value)
        assert torch.equal(other.module.weight, trained(1).module.weight)


def test_one_that_breaks_off_or_goes_on_is_refused(saved):
    whole = saved.read_bytes()
    for content in (whole[:-1], whole + b"\0", whole[:50], b"", whole.partition(b"\n")[2]):
        saved.write_bytes(content)
        with pytest.raises(TrainingError, match="found another file or a damaged one"):
            load_checkpoint(saved, SETTINGS, trained(1), CPU)


def test_one_that_is_far_larger_than_the_module_is_not_read(saved):
    with saved.open("r+b") as file:
        file.truncate(3 << 30)  # sparse
    with pytest.raises(TrainingError, match=r"expected at most .* bytes, found 3221225472"):
        load_checkpoint(saved, SETTINGS, trained(1), CPU)


def test_a_job_begins_anew_where_its_checkpoint_is_damaged(tmp_path):
    request = small_trial(epochs=2)

    def curve(outcome: TrialOutcome) -> list[tuple[float, float]]:
        return [(row["train_loss"], row["accuracy"]) for row in outcome.curve]

    left = tmp_path / "a" / "checkpoint-64.pt"
    run_trial(request, folder=tmp_path / "a", should_stop=left.exists)
    content = bytearray(left.read_bytes())
    content[len(content) // 2] ^= 4
    left.write_bytes(content)
    said: list[str] = []
    outcome = run_trial(request, folder=tmp_path / "a", report=lambda _, message: said.append(message))
    assert any(line.startswith("starts from the beginning: expected a checkpoint in") for line in said)
    assert outcome.resumed == 0
    assert curve(outcome) == curve(run_trial(request, folder=tmp_path / "b"))
