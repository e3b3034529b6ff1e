"""Rules for early termination: Canvas's against curves worked out by hand, Optuna's against what their names say."""

import pytest

from syno_lab.errors import TrainingError
from syno_lab.trial.stopping import (
    RULES,
    CanvasRule,
    HalvingRule,
    MedianRule,
    PatienceRule,
    PercentileRule,
    parse_rule,
)

BEST = [0.2, 0.4, 0.6, 0.8]


# Canvas, section 7: accuracy(epoch) >= lambda * best(epoch), lambda = 0.5 + 0.5 * epoch / 4: 0.625, 0.75, 0.875.
@pytest.mark.parametrize(
    ("curve", "stops"),
    [
        ([0.126], False),
        ([0.124], True),
        ([0.9, 0.301], False),
        ([0.9, 0.299], True),
        ([0.9, 0.9, 0.526], False),
        ([0.9, 0.9, 0.524], True),
    ],
)
def test_canvas_asks_for_more_as_epochs_go_by(curve, stops):
    reason = CanvasRule(0.5).reason(curve, [BEST], 4)
    assert (reason is not None) == stops
    if reason is not None:
        assert f"{curve[-1]:.4f} after epoch {len(curve)} of 4, below" in reason
        assert f"{BEST[len(curve) - 1]:.4f}" in reason


def test_canvas_may_leave_the_first_epochs_alone():
    # ResNet-20 on three seeds, two epochs each: after the first the worst in the end was the best.
    worst, best = [0.190, 0.255], [0.142, 0.362]
    assert CanvasRule().reason(best[:1], [worst], 2) is not None
    assert CanvasRule(warmup=1).reason(best[:1], [worst], 2) is None
    assert CanvasRule(warmup=1).reason([0.2, 0.2], [[0.1, 0.5, 0.5]], 3) is not None
    with pytest.raises(TrainingError, match="expected warmup as a whole number from 0 up, found -1"):
        CanvasRule(warmup=-1)


def test_canvas_shares():
    assert [CanvasRule(0.5).share(epoch, 4) for epoch in (1, 2, 3, 4)] == [0.625, 0.75, 0.875, 1.0]
    assert [CanvasRule(0.0).share(epoch, 4) for epoch in (1, 2, 4)] == [0.25, 0.5, 1.0]
    assert CanvasRule(1.0).share(1, 4) == 1.0


def test_canvas_compares_with_the_best_result_and_not_with_the_best_at_that_epoch():
    fast, best = [0.5, 0.5, 0.5, 0.5], [0.1, 0.2, 0.3, 0.9]
    assert CanvasRule().reason([0.07], [fast, best], 4) is None  # 0.625 * 0.1, not 0.625 * 0.5
    assert CanvasRule().reason([0.06], [fast, best], 4) is not None


def test_canvas_with_nothing_to_compare_with_goes_on():
    assert CanvasRule().reason([0.0], [], 4) is None
    assert CanvasRule().reason([0.0], [[]], 4) is None
    assert CanvasRule().reason([], [BEST], 4) is None
    assert CanvasRule().reason([0.0, 0.0], [[0.9]], 4) is None  # the best was not trained that far


def test_the_median_of_the_rivals_at_the_same_epoch():
    rivals = [[0.1 * place, 0.1 * place + 0.2] for place in range(1, 6)]
    rule = MedianRule(startup=5)
    assert rule.reason([0.29], rivals, 3) is not None  # the median after epoch 1 is 0.3
    assert rule.reason([0.31], rivals, 3) is None
    assert rule.reason([0.31, 0.31], rivals, 3) is not None  # and 0.5 after epoch 2
    assert rule.reason([0.31, 0.51], rivals, 3) is None
    assert rule.reason([0.29], rivals[:4], 3) is None  # too few rivals to start
    assert MedianRule(startup=5, warmup=1).reason([0.29], rivals, 3) is None
    assert MedianRule(startup=5, warmup=1).reason([0.29, 0.1], rivals, 3) is not None


def test_a_percentile_of_the_rivals():
    rivals = [[0.1 * place] for place in range(1, 6)]
    rule = PercentileRule(percentile=25.0, startup=1)  # among the best quarter of 0.1 … 0.5: 0.4 and up
    assert rule.reason([0.39], rivals, 3) is not None
    assert rule.reason([0.41], rivals, 3) is None


def test_successive_halving_lets_half_of_a_rung_go_on():
    rule = HalvingRule(least=1, reduction=2)
    rivals = [[0.1], [0.2], [0.3]]
    assert rule.reason([0.25], rivals, 4) is None  # second of four
    assert rule.reason([0.15], rivals, 4) is not None  # third of four
    # A rung is after 1, 2, 4, … epochs: nothing is decided after 3.
    long = [[0.5, 0.5, 0.5], [0.6, 0.6, 0.6]]
    assert rule.reason([0.7, 0.7, 0.0], long, 4) is None
    assert rule.reason([0.7, 0.0], long, 4) is not None


def test_patience_knows_no_rivals():
    rule = PatienceRule(2)
    assert rule.reason([0.5, 0.4], [BEST], 9) is None
    assert rule.reason([0.5, 0.4, 0.5], [BEST], 9) is not None  # no better than before
    assert rule.reason([0.5, 0.4, 0.6], [BEST], 9) is None


def test_rules_by_name():
    assert parse_rule({"rule": "canvas"}) == CanvasRule(0.5)
    assert parse_rule({"rule": "canvas", "theta": 0.25}) == CanvasRule(0.25)
    assert parse_rule({"rule": "halving", "reduction": 3}) == HalvingRule(1, 3)
    for name, kind in RULES.items():
        assert isinstance(parse_rule({"rule": name}), kind)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "expected a rule among canvas, median, percentile, halving, patience, found None"),
        ({"rule": "luck"}, "expected a rule among canvas.*found 'luck'"),
        ({"rule": "canvas", "startup": 1}, "the rule canvas has no startup"),
        ({"rule": "canvas", "theta": 1.5}, "expected theta from 0 to 1, found 1.5"),
        ({"rule": "canvas", "theta": float("nan")}, "expected theta from 0 to 1, found nan"),
        ({"rule": "canvas", "theta": "a"}, "the rule canvas: Expected `float`"),
        ({"rule": "median", "startup": -1}, "expected startup as a whole number from 0 up"),
        ({"rule": "percentile", "percentile": 101.0}, "expected percentile from 0 to 100"),
        ({"rule": "halving", "least": 0}, "expected least as a whole number from 1 up"),
        ({"rule": "halving", "reduction": 1}, "expected reduction as a whole number from 2 up"),
        ({"rule": "patience", "patience": 0}, "expected patience as a whole number from 1 up"),
    ],
)
def test_what_is_no_rule_is_refused(data, message):
    with pytest.raises(TrainingError, match=message) as refusal:
        parse_rule(data)
    assert "\n" not in str(refusal.value)
