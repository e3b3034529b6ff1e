"""Language models on texts: perplexity, windows, determinism, checkpoints."""

import math

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from syno_lab.data.text import TextData, load_text
from syno_lab.errors import DataError, SpecError, TrainingError
from syno_lab.ir.build import Build
from syno_lab.models.gpt import GPT
from syno_lab.models.tokens import Tokens
from syno_lab.operators import grouped_linear
from syno_lab.training import train_text
from syno_lab.training.recipes import text_recipe
from syno_lab.training.tasks import TextTask
from syno_lab.training.train import text_answers
from syno_lab.trial import TrialRequest, costs_of, run_trial, sites_of

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def verse(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "verse.txt"
    path.write_text("to be or not to be, that is the question. " * 60)
    return path


def dense():
    """The linear layer itself as an operator."""
    build = Build("[N, C_in]", "[N, C_out]", ["N", "C_in", "C_out"], fixed_io_pairs=[(0, 0)])
    n, o = build.output
    c = build.reduce("C_in")
    build.contract(share=[c], give=[o])
    return build.finish(n, c)


class Even(nn.Module):
    """Whatever it reads, every token is as likely as any other."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.bias.expand(*tokens.shape, -1)


def tiny(vocabulary: int, seed: int = 0) -> GPT:
    torch.manual_seed(seed)
    return GPT(vocabulary, context=8, width=16, layers=1, heads=2)  # with dropout


@pytest.mark.parametrize("kind", ["bytes", "characters"])
def test_the_perplexity_of_a_uniform_model_is_the_vocabulary(verse, kind):
    text = load_text(verse, kind)
    assert text.tokens.size == (256 if kind == "bytes" else len(set(verse.read_text())))
    result = train_text(Even(text.tokens.size), text, context=8, epochs=1, steps=1, learning_rate=1e-30)
    assert result.perplexity == pytest.approx(text.tokens.size, rel=1e-5)
    assert result.curve[0].test_loss == pytest.approx(math.log(text.tokens.size), rel=1e-5)
    losses = text_answers(Even(text.tokens.size), text, context=8)
    assert np.exp(losses) == pytest.approx(text.tokens.size, rel=1e-5)


def test_a_text_that_repeats_itself_is_learnt(verse):
    text = load_text(verse, "characters")
    result = train_text(tiny(text.tokens.size), text, context=8, epochs=3, steps=60, learning_rate=1e-2)
    assert result.stopped == "finished"
    assert result.perplexity < 2.5 < text.tokens.size


def test_every_token_of_the_test_part_is_guessed_once(verse):
    text = load_text(verse)
    task = TextTask(text, torch.device("cpu"), context=8, batch_size=5, steps=1)
    batches = [task.test_batch(number, torch.float32) for number in range(task.test_batches)]
    answers = torch.cat([answer.flatten() for _, answer in batches])
    whole = (len(text.test) - 1) // 8 * 8
    assert answers.tolist() == text.test[1 : whole + 1].tolist()
    inputs = torch.cat([given.flatten() for given, _ in batches])
    assert inputs.tolist() == text.test[:whole].tolist()
    some = TextTask(text, torch.device("cpu"), context=8, batch_size=5, steps=1, test_windows=7)
    assert [len(some.test_batch(number, torch.float32)[0]) for number in range(some.test_batches)] == [5, 2]


def test_training_windows_come_from_the_training_part_alone():
    text = TextData("t", "t", np.arange(0, 100) % 50, 50 + np.arange(0, 30) % 50, Tokens())
    task = TextTask(text, torch.device("cpu"), context=9, batch_size=64, steps=1)
    draw = torch.Generator().manual_seed(0)
    seen = set()
    for _ in range(50):
        inputs, answers = task.train_batch(0, torch.float32, draw)
        assert inputs.max() < 50
        assert torch.equal((inputs + 1) % 50, answers)
        seen |= set(inputs[:, 0].tolist())
    assert len(seen) == 50  # 100 - 9 beginnings, which are all the numbers


def test_the_seed_decides_everything_and_a_resumed_training_is_the_same(verse, tmp_path):
    text = load_text(verse)
    nets = [tiny(256) for _ in range(3)]
    arguments = {"context": 8, "epochs": 3, "steps": 5, "seed": 4}
    first, second = (train_text(net, text, **arguments) for net in nets[:2])
    other = train_text(tiny(256), text, **(arguments | {"seed": 5}))
    strip = lambda result: [(one.train_loss, one.test_loss, one.test_accuracy) for one in result.curve]  # noqa: E731
    assert strip(first) == strip(second) != strip(other)
    seen = []
    stopped = train_text(
        nets[2],
        text,
        **arguments,
        checkpoint=tmp_path / "c",
        on_progress=seen.append,
        should_stop=lambda: seen[-1:] != [] and (seen[-1].epoch, seen[-1].batch) == (3, 2),
    )
    assert stopped.stopped == "interrupted"
    found = []
    resumed_net = tiny(256, seed=9)
    resumed = train_text(resumed_net, text, **arguments, checkpoint=tmp_path / "c", on_resume=found.append)
    assert [one.epochs for one in found] == [2]
    assert strip(resumed) == strip(first)
    assert all(
        torch.equal(one, two)
        for one, two in zip(resumed_net.state_dict().values(), nets[0].state_dict().values(), strict=True)
    )
    with pytest.raises(TrainingError, match=r"training with context 4 in .*, found 8; delete"):
        train_text(tiny(256), text, **(arguments | {"context": 4}), checkpoint=tmp_path / "c")


def test_a_trial_replaces_the_projections_to_queries_keys_and_values(verse, tmp_path):
    options = {"width": 16, "layers": 2, "heads": 2, "context": 8, "steps": 10}
    base = TrialRequest(backbone="gpt_tiny", options=options, data=str(verse), epochs=2, batch_size=8)
    assert [site.name for site in sites_of(base)] == ["blocks.0.attention.qkv", "blocks.1.attention.qkv"]
    outcomes = {}
    for name, operator in (("baseline", None), ("dense", dense()), ("grouped", grouped_linear())):
        text = None if operator is None else operator.to_json()
        request = TrialRequest(
            backbone="gpt_tiny", options=options, data=str(verse), epochs=2, batch_size=8, operator=text
        )
        outcomes[name] = run_trial(request, folder=tmp_path / name)
        assert outcomes[name].state == "finished", outcomes[name].reason
        assert outcomes[name].accuracy == pytest.approx(1 / outcomes[name].perplexity)
        assert costs_of(request) == (outcomes[name].flops, outcomes[name].params)
    assert (outcomes["dense"].replaced, outcomes["dense"].places) == (2, 2)
    assert outcomes["dense"].flops == outcomes["baseline"].flops
    assert outcomes["dense"].params == outcomes["baseline"].params
    assert outcomes["grouped"].flops < outcomes["baseline"].flops


def test_a_budget_ends_a_training_that_is_finished(verse, tmp_path):
    request = TrialRequest(
        backbone="gpt_tiny",
        options={"width": 8, "layers": 1, "heads": 1, "context": 8, "steps": 2},
        data=str(verse),
        epochs=100_000,
        budget_s=0.5,
        test_images=4,
    )
    outcome = run_trial(request, folder=tmp_path)
    assert (outcome.state, outcome.reason) == ("finished", "")
    assert outcome.perplexity is not None
    assert 0 < len(outcome.curve) < 100_000


def test_the_perplexity_of_a_byte_is_that_of_the_same_text(verse, tmp_path):
    """The bits of the test text are the same, whether they are told for each token or for each byte."""
    options = {"width": 8, "layers": 1, "heads": 1, "context": 8, "steps": 1, "tokens": "bpe", "vocabulary": 300}
    request = TrialRequest(backbone="gpt_tiny", options=options, data=str(verse), epochs=1)
    outcome = run_trial(request, folder=tmp_path)
    assert outcome.state == "finished", outcome.reason
    text = load_text(verse, "bpe", vocabulary=300)
    assert text.tokens.size <= 300
    assert text.tokens.decode(text.train) + text.tokens.decode(text.test) == verse.read_text()
    guessed = text.test[1 : (len(text.test) - 1) // 8 * 8 + 1]
    count = len(text.tokens.decode(guessed).encode())
    assert len(guessed) < count
    assert math.log(outcome.perplexity_per_byte) * count == pytest.approx(outcome.loss * len(guessed), rel=1e-6)
    blank = tmp_path / "blank.txt"
    blank.write_text(". - .\n" * 50)
    failed = run_trial(msgspec.structs.replace(request, data=str(blank)), folder=tmp_path / "blank")
    assert (failed.state, failed.reason) == (
        "failed",
        f"{blank}: expected words to learn tokens from, found a text without letters and digits; take bytes",
    )


def test_where_a_clock_ends_it_the_rate_does_not_depend_on_the_number_of_steps():
    rate = text_recipe(ends_by_clock=True).rate
    assert [rate(step, 10) for step in range(300)] == [rate(step, 10**6) for step in range(300)]
    assert rate(0, 1) == pytest.approx(0.01)
    assert rate(99, 1) == 1.0
    assert rate(399, 1) == pytest.approx(0.5)


def test_texts_that_cannot_be_learnt_are_refused(tmp_path, verse):
    with pytest.raises(DataError, match=r"expected a text file at .*nothing, found: No such file"):
        load_text(tmp_path / "nothing")
    path = tmp_path / "text"
    path.write_bytes(b"")
    for kind in ("bytes", "bpe"):
        with pytest.raises(DataError, match=r"expected a text at .*, found an empty file"):
            load_text(path, kind)
    path.write_text(" \n\t" * 50 + "words in the part for tests alone")
    with pytest.raises(DataError, match=r"text: expected words to learn tokens from, found .*; take bytes"):
        load_text(path, "bpe", test_share=0.2)
    assert load_text(path).tokens.size == 256
    path.write_bytes(b"good \xff bad")
    with pytest.raises(DataError, match=r"expected a text in UTF-8 at .*, found the byte 0xff at 5"):
        load_text(path)
    path.write_text("a")
    with pytest.raises(DataError, match="expected a text of at least two tokens to train on"):
        load_text(path)
    with pytest.raises(DataError, match="expected test_share as a number between 0 and 1, found 1"):
        load_text(verse, test_share=1)
    with pytest.raises(SpecError, match="tokens: expected one of 'bytes', 'characters', 'bpe', found 'words'"):
        load_text(verse, "words")
    with pytest.raises(DataError, match="expected tokens from 0 to 255, found 0 to 256"):
        TextData("t", "t", np.array([0, 256]), np.array([0, 1]), Tokens())
    path.write_text("ab" * 30)
    with pytest.raises(TrainingError, match="expected at least 9 tokens to test on, for windows of 8, found 6"):
        train_text(tiny(256), load_text(path), context=8, epochs=1)
    text = load_text(verse)
    with pytest.raises(TrainingError, match=r"expected logits \[32, 8, 256\] for tokens \[32, 8\].*found \[32, 8, 9\]"):
        train_text(Even(9), text, context=8, epochs=1)
    with pytest.raises(TrainingError, match="expected steps as a whole number from 1 up, found 0"):
        train_text(Even(256), text, context=8, epochs=1, steps=0)
