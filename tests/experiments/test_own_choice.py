"""Rules and a reward of one's own lead a search, travel to its jobs as text, and run only where the user gave them."""

from __future__ import annotations

import inspect
import linecache
import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn
from torch.utils.data import Subset, TensorDataset

import syno_lab as sl
from syno_lab.errors import CodeError, SearchError, SpecError, StoreError
from syno_lab.experiments import Judged, SearchSettings, Space, run_here, with_choice
from syno_lab.experiments.own import with_data, with_layers, with_model
from syno_lab.experiments.own_choice import own_reward, own_rules
from syno_lab.store import Store
from syno_lab.trial import TrialRequest


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


@cache
def training() -> TrialRequest:
    """A network and data of one's own, whose trainings take a hundredth of a second."""
    classes = torch.arange(80) % 4
    whole = TensorDataset(torch.randn(80, 16) + nn.functional.one_hot(classes, 16), classes)
    request = TrialRequest(backbone="", epochs=1, batch_size=32, threads=1)
    request = with_data(with_model(request, make_model), (Subset(whole, range(60)), Subset(whole, range(60, 80))))
    return with_layers(request)[0]


def settings(**changes: Any) -> SearchSettings:
    given: dict[str, Any] = {
        "training": training(),
        "trials": 3,
        "seeds": (),
        "method": "random",
        "max_replaced_ratio": 1.0,
        "limits": {"max_primitives": 4},
        "weight_limits": "primary",
    }
    return SearchSettings(**(given | changes))


def no_window(state: Any, step: Any) -> bool:
    """Windows are for images."""
    return bool(step.primitive == "UNFOLD")


def small(trial: Judged) -> float:
    return max(0.0, 1 - trial.params_ratio)


def test_a_rule_of_ones_own_in_the_space() -> None:
    space, restricted = Space(settings()), Space(with_choice(settings(), [no_window]))
    (rule,) = own_rules(with_choice(settings(), [no_window]))
    assert (rule.name, rule.reason) == ("no-window", "Windows are for images.")
    drawn = {name: _primitives(one, 60) for name, one in {"all": space, "restricted": restricted}.items()}
    assert "UNFOLD" in drawn["all"]
    assert "UNFOLD" not in drawn["restricted"]
    assert {"REDUCE", "SHARE"} <= drawn["restricted"]
    with pytest.raises(SpecError, match=r"rules of your own: expected a search of pGraphs, found Canvas"):
        Space(with_choice(settings(system="syno-lab-canvas"), [no_window]))


def _primitives(space: Space, count: int) -> set[str]:
    search = space.search(settings())
    found = []
    for _ in range(count):
        candidate = search.ask()
        if candidate is None:
            break
        search.tell(candidate, 0.5)
        found.append(candidate.operator)
    return {step.primitive for operator in found for step in operator.steps}


def test_a_reward_of_ones_own_leads_the_search(tmp_path: Path) -> None:
    chosen = with_choice(settings(), reward=small)
    result = run_here(chosen, tmp_path)
    baseline, flops = (result["baseline"][name] for name in ("params", "flops"))
    with Store.open(tmp_path) as store:
        trials = store.search("search").trials()
    assert len(trials) == 3
    for trial in trials:  # the reward as we work it out here
        assert trial.accuracy is not None
        assert trial.reward == pytest.approx(max(0.0, 1 - trial.params / baseline))
    for best in result["best"].values():  # the smallest within each share, whatever its accuracy
        if best is not None:
            assert best["params"] == min(t.params for t in trials if t.flops / flops <= best["flops_ratio"])
    with pytest.raises(StoreError, match="reward"):
        run_here(settings(trials=4), tmp_path)


def gone(trial: Judged) -> float:
    raise KeyError("gone")


def too_high(trial: Judged) -> float:
    return 2.0


def perhaps(state: Any, step: Any) -> Any:
    return None


def test_what_is_wrong_with_them_is_said_in_one_line() -> None:
    with pytest.raises(CodeError, match=r"gone of .*: KeyError: 'gone'"):
        with_choice(settings(), reward=gone)
    with pytest.raises(CodeError, match=r"too_high of .*: expected a reward from 0 to 1, found 2.0 for Judged"):
        with_choice(settings(), reward=too_high)
    with pytest.raises(SearchError, match="reward: expected a search that trains"):
        with_choice(settings(untrained=True), reward=small)
    with pytest.raises(SearchError, match="rules: expected rules that differ, found no_window@"):
        with_choice(settings(), [no_window, no_window])
    with pytest.raises(CodeError, match=r"perhaps of .*: expected True or False, found None"):
        own_rules(with_choice(settings(), [perhaps]))[0].match(None, None)


def test_code_of_a_strangers_settings_does_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    code = {"name": "theirs", "source": f"open({str(mark)!r}, 'w')\ndef theirs(trial): return 1.0", "origin": "x"}
    stored = SearchSettings.from_dict(msgspec.to_builtins(settings()) | {"reward": code, "rules": [code]})
    for read in (own_rules, own_reward, Space, lambda one: run_here(one, tmp_path / "lab")):
        with pytest.raises(CodeError, match="expected code that this process has run, found 'theirs@"):
            read(stored)
    assert not mark.exists()
    again = SearchSettings.from_dict(msgspec.json.decode(msgspec.json.encode(with_choice(settings(), reward=small))))
    assert own_reward(again) is not None  # this process was given it
    assert again.identity["reward"].startswith("small@")


@pytest.mark.parametrize(("page", "given"), [("own-rule", "rules"), ("own-reward", "reward")])
def test_the_functions_of_the_manual_can_be_given(page: str, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / f"{page}.md").read_text(encoding="utf-8")
    function, call, *_ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {"__name__": "__main__"}
    monkeypatch.setitem(linecache.cache, page, (len(function), None, function.splitlines(keepends=True), page))
    exec(compile(function, page, "exec"), names)
    (mine,) = [value for value in names.values() if inspect.isfunction(value)]
    assert f"{given}=" in call
    assert given in inspect.signature(sl.improve).parameters
    chosen = with_choice(settings(), **{given: [mine] if given == "rules" else mine})
    if given == "rules":
        assert "SHIFT" not in _primitives(Space(chosen), 5)
    else:
        reward = own_reward(chosen)
        assert reward is not None
        assert reward(Judged(0.9, 1, 0.5, 1)) == pytest.approx(0.85)
