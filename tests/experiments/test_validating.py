"""Validating proxies: rank correlations against scipy's, the ceiling, what is drawn and kept, and what may be used."""

from concurrent.futures import Future
from pathlib import Path

import msgspec
import numpy as np
import pytest
import scipy.stats
from known_trainings import accuracy, settings
from typer.testing import CliRunner

from syno_lab.cli import app
from syno_lab.errors import SearchError, SpecError
from syno_lab.experiments import Running, Stopped
from syno_lab.experiments.agreement import agreements, ceiling, spearman
from syno_lab.experiments.finals import final_seeds
from syno_lab.experiments.validate_proxy import (
    RESULT_FILE,
    read_validation,
    usable_probe,
    usable_rungs,
    validate_proxies,
    validations_in,
)
from syno_lab.trial import TrialRequest


def test_the_rank_correlation_is_scipys(np_rng):
    for _ in range(20):
        one, other = np_rng.integers(6, size=(2, 12))  # with ties
        expected = scipy.stats.spearmanr(one, other).statistic
        assert float(spearman(one, other)) == pytest.approx(expected, nan_ok=True)
    assert np.isnan(spearman([1, 1, 1], [1, 2, 3]))


def test_a_proxy_must_rank_better_than_flops_and_parameters(np_rng):
    truth = np_rng.normal(size=40)
    values = {
        "good": truth + np_rng.normal(0, 0.05, 40),
        "poor": np_rng.normal(size=40),
        "constant": np.ones(40),
    }
    flops = truth + np_rng.normal(0, 0.5, 40)
    found = {one.predictor: one for one in agreements(values, {"FLOPs": flops, "parameters": -truth}, truth)}
    assert list(found) == ["good", "poor", "constant", "FLOPs", "parameters"]
    assert (found["good"].is_used, found["poor"].is_used, found["constant"].is_used) == (True, False, False)
    assert (found["FLOPs"].is_used, found["FLOPs"].above, found["constant"].spearman) == (None, None, None)
    assert found["parameters"].spearman == pytest.approx(-1)
    assert found["good"].low < found["good"].spearman < found["good"].high
    assert found["good"].above > 0.9
    # A proxy that ranks well, but no better than FLOPs, is not used.
    (same, _) = agreements({"same": flops}, {"FLOPs": flops}, truth)
    assert same.is_used is False
    with pytest.raises(SearchError, match="expected 4 or more operators with all their values, found 3"):
        agreements({"few": [1, 2, 3]}, {}, [1, 2, 3])


def test_an_interval_of_a_correlation_holds_the_truth_as_often_as_it_says(np_rng):
    # The rank correlation of a bivariate normal with correlation r is 6/pi arcsin(r/2).
    truth, hits, runs = 6 / np.pi * np.arcsin(0.7 / 2), 0, 200
    for _ in range(runs):
        one, noise = np_rng.normal(size=(2, 60))
        other = 0.7 * one + np.sqrt(1 - 0.49) * noise
        (found,) = agreements({"it": one}, {}, other, confidence=0.8, resamples=200)
        hits += found.low <= truth <= found.high
    assert hits / runs > 0.75 - 5.2 * np.sqrt(0.75 * 0.25 / runs)


def test_the_ceiling_is_what_repetition_allows(np_rng):
    assert ceiling([[1, 2, 3, 4]]).most is None
    same = ceiling([[1, 2, 3, 4], [1, 2, 3, 4]])
    assert (same.between_seeds, same.reliability, same.most) == (1.0, 1.0, 1.0)
    assert ceiling([[1, 2, 3, 4], [4, 3, 2, 1]]).most == 0.0
    # Two seeds with equal parts of signal and noise correlate by 1/2, and their mean has the reliability 2/3.
    signal = np_rng.normal(size=20_000)
    found = ceiling(signal + np_rng.normal(size=(2, 20_000)))
    assert found.reliability == pytest.approx(2 / 3, abs=0.06)
    perfect = float(spearman(signal, (signal + np_rng.normal(size=(2, 20_000))).mean(axis=0)))
    assert found.most == pytest.approx(perfect, abs=0.06)


def test_finals_have_seeds_of_their_own():
    assert final_seeds(3) == (1000, 1001, 1002)
    assert len(set(final_seeds())) == 5


# -- a validation ------------------------------------------------------------------------------------------------------


class Rungs:
    """A runner whose rungs rank operators as the truth does, or against it; some operators are slow."""

    def __init__(self, *, sign: float = 1.0, slow: int = 0, most: int = 10**9) -> None:
        self.sign, self.slow, self.most = sign, slow, most
        self.begun: dict[str, TrialRequest] = {}

    def find(self, name: str, request: TrialRequest) -> Running | None:
        return None

    def submit(self, name: str, request: TrialRequest) -> Running:
        assert name not in self.begun, f"{name} is begun twice"
        self.begun[name] = request
        future: Future[dict] = Future()
        value = 0.5 if request.operator is None else accuracy(request.operator)
        number = int(name.partition("operator ")[2].partition(",")[0])
        state = "timeout" if 0 <= number < self.slow and request.steps == 40 else "finished"
        loss = 2 - self.sign * value
        outcome = {
            "state": state,
            "accuracy": value,
            "train_loss": loss,
            "curve": [{"test_loss": loss, "accuracy": value}],
            "cpu_s": 2.0,
            "work_s": 1.5,
            "machine": "this one",
        }
        future.set_result(outcome)
        return Running(future)


def test_operators_that_nothing_chose_are_trained_on_every_rung(tmp_path):
    rungs = Rungs(slow=2)
    found = validate_proxies(settings(), rungs, folder=tmp_path, operators=8, seeds=2)
    assert (found.counted, found.drawn, found.states) == (8, 10, {"timeout": 2})
    assert len({one.operator for one in found.operators}) == 10
    assert found.used == ["40 steps", "156 steps"]
    assert [one.spearman for one in found.agreements[:2]] == pytest.approx([1.0, 1.0])
    assert [one.predictor for one in found.agreements[-2:]] == ["FLOPs", "parameters"]
    assert (found.machine, found.seeds, found.ceiling.most) == ("this one", [1000, 1001], 1.0)
    # One baseline; 10 on the first rung, 8 on the second with two seeds, 8 with the full recipe and two seeds.
    assert len(rungs.begun) == 1 + 10 + 2 * 8 + 2 * 8
    assert {request.holdout for request in rungs.begun.values()} == {0.2}
    first = rungs.begun["search: operator 3, 40 steps, seed 0"]
    assert (first.steps, first.time_limit_s, first.probe_steps) == (40, 3.0, 7)
    full = rungs.begun["search: operator 3, network, seed 1000"]
    assert (full.steps, full.epochs, full.seed) == (None, 2, 1000)
    assert read_validation(tmp_path / RESULT_FILE) == found
    # The same command goes on with the same operators.
    again = validate_proxies(settings(), Rungs(slow=2), folder=tmp_path, operators=8, seeds=2)
    assert [one.operator for one in again.operators] == [one.operator for one in found.operators]
    with pytest.raises(SearchError, match=r"expected a validation with these settings in .* found one with others"):
        validate_proxies(settings(seed=9), Rungs(), folder=tmp_path, operators=8, seeds=2)


def test_a_stopped_validation_goes_on_with_what_it_drew(tmp_path):
    rungs = Rungs()
    with pytest.raises(Stopped, match="the same command continues it"):
        validate_proxies(
            settings(), rungs, folder=tmp_path, operators=5, seeds=1, should_stop=lambda: len(rungs.begun) > 3
        )
    drawn = {request.operator for request in rungs.begun.values()} - {None}
    found = validate_proxies(settings(), Rungs(), folder=tmp_path, operators=5, seeds=1)
    assert drawn <= {one.operator for one in found.operators}
    assert found.ceiling.most is None


def test_a_proxy_that_ranks_the_wrong_way_is_not_used(tmp_path):
    place = tmp_path / "validations" / "wrong"
    found = validate_proxies(settings(), Rungs(sign=-1.0), folder=place, operators=6, seeds=1)
    assert (found.used, found.unused) == ([], ["40 steps", "156 steps", "probe"])
    kept = validations_in(tmp_path)
    assert kept == [found]
    (place.parent / "torn").mkdir()
    (place.parent / "torn" / RESULT_FILE).write_text("{")
    assert validations_in(tmp_path) == [found]
    request = settings().training
    used, lines = usable_rungs(request, kept)
    assert [rung.name for rung in used] == ["network"]
    assert "the rung '40 steps' is not used: its validation ranks no better than FLOPs or parameters" in lines
    line = "the probe is not used: its validation ranks no better than FLOPs or parameters"
    assert usable_probe(request, kept) == (False, [line])
    assert usable_probe(request, [*kept, msgspec.structs.replace(found, used=["probe"], unused=[])]) == (True, [])
    assert usable_probe(request, kept, "another system") == usable_probe(request) == (True, [])
    # Without a validation, or with one of other data, the declared rungs are used.
    assert len(usable_rungs(request)[0]) == 3
    elsewhere = msgspec.structs.replace(request, data="/somewhere/cifar-10-batches-bin")
    assert len(usable_rungs(elsewhere, kept)[0]) == 3


def test_rungs_of_a_text_wait_for_a_validation():
    used, lines = usable_rungs(TrialRequest(backbone="gpt_tiny"))
    assert [rung.name for rung in used] == ["network"]
    assert "no validation shows that it ranks operators of gpt_tiny; `syno-lab search --validate-proxy`" in lines[0]


def test_almost_all_operators_are_slow(tmp_path):
    with pytest.raises(SearchError, match="expected 4 operators that train to the end on 40 steps, found 0 of 16"):
        validate_proxies(settings(), Rungs(slow=99), folder=tmp_path, operators=4, seeds=1)
    with pytest.raises(SearchError, match="expected 4 or more operators and 1 or more seeds"):
        validate_proxies(settings(), Rungs(), folder=tmp_path, operators=3)
    gpt2 = msgspec.structs.replace(settings().training, backbone="gpt2")
    with pytest.raises(SpecError, match="found gpt2, which declares none"):
        usable_rungs(gpt2)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--operators", "5"], "--operators and --full-seeds: expected --validate-proxy beside them, found none"),
        (["--validate-proxy", "--detach"], "--validate-proxy: expected a validation in this process"),
    ],
)
def test_the_command_refuses_what_does_not_go_together(words, line, tmp_path):
    done = CliRunner().invoke(app, ["search", *words, "--data", "digits", "--folder", str(tmp_path)])
    assert done.exit_code != 0
    assert line in str(done.exception or done.output)


def test_the_command_says_what_may_be_used(tmp_path, monkeypatch):
    from syno_lab.experiments import validate_proxy

    def known(chosen, lab: Path, *, operators, seeds, **_):
        return validate_proxies(settings(), Rungs(), folder=lab / "v", operators=operators, seeds=seeds)

    monkeypatch.setattr(validate_proxy, "validate_here", known)
    words = ["search", "--validate-proxy", "--operators", "5", "--data", "digits", "--folder", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    for said in (
        "5 operators, the full recipe on 2 seeds",
        "used: 40 steps, 156 steps; not used: probe",
        "ceiling: 1.00",
    ):
        assert said in done.output
    read = CliRunner().invoke(app, [*words, "--json", "-"])
    assert msgspec.json.decode(read.stdout)["used"] == ["40 steps", "156 steps"]
