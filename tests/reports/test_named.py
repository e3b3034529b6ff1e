"""Names of operators: known ones, files, and trials of a lab, wherever an operator is expected."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import answered, refused
from known_trainings import settings
from syno_widgets import Compare, OperatorView

import syno_lab as sl
from syno_lab.commands.tune import _tasks
from syno_lab.errors import StoreError, SynoError
from syno_lab.experiments.space import Space
from syno_lab.ir.build import Build
from syno_lab.operators import conv2d, grouped, operator_1, separable
from syno_lab.operators.known import IMAGE, INPUT, OUTPUT, separable_reversed
from syno_lab.operators.neighbours import nearest
from syno_lab.reports.named import find_trial
from syno_lab.reports.why import read_why, why_tables, why_text
from syno_lab.store import Store
from syno_lab.store.searches import LayerSizes
from syno_lab.systems import named

LAYER = {"N": 1, "C_in": 32, "C_out": 48, "H": 20, "W": 12, "k_1": 3, "g": 8, "s": 2}
SIZES = (LayerSizes("body.conv1", 3, LAYER), LayerSizes("body.conv9", 1, LAYER | {"H": 10}))
FIRST = "body.conv1 and 2 more like it"
OPERATORS = {"separable": separable(), "operator_1": operator_1(), "grouped": grouped(), "conv2d": conv2d()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a lab of two searches: of ``s`` trial 1 is best, 2 failed, 3 waits; ``t`` has one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SYNO_LAB_FOLDER", raising=False)
    (tmp_path / ".syno-lab").mkdir()
    with Store.open(tmp_path / ".syno-lab") as store:
        log = store.search("s", {})
        for number, (name, operator) in enumerate(OPERATORS.items()):
            sizes = SIZES if number == 1 else ()
            assert log.add(name, operator.to_json(), [], 400, 50, sizes) == number
        log.record(0, {"state": "finished", "accuracy": 0.4})
        log.record(1, {"state": "finished", "accuracy": 0.5})
        log.record(2, {"state": "diverged", "accuracy": 0.9, "reason": "the loss is not a number"})
        store.search("t", {}).add("x", grouped().to_json(), [], 400, 50)
    return tmp_path


def test_each_kind_of_name_means_its_operator(folder: Path) -> None:
    file = folder / "own.json"
    file.write_text(separable().to_json())
    for name, operator, label in (
        ("conv2d", conv2d(), "conv2d"),
        ("known:conv2d", conv2d(), "conv2d"),
        (str(file), separable(), "own"),
        ("own.json", separable(), "own"),
        (operator_1().to_json(), operator_1(), "operator"),
        ("s#0", separable(), "s#0"),
        ("search:s#0", separable(), "s#0"),
        ("s#best", operator_1(), "s#1"),
        ("s#3", conv2d(), "s#3"),
        ("t#0", grouped(), "t#0"),
    ):
        found = named(name)
        assert (found.operator, found.label) == (operator, label), name
        assert sl.read(name) == sl.open_lab().operator(name) == operator, name


def test_a_lab_of_another_folder_is_named_by_the_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab = folder / "other"
    (folder / ".syno-lab").rename(lab)
    with pytest.raises(StoreError, match=r"the results store .*syno-lab.* is not there: expected the folder of a lab"):
        sl.read("s#1")
    assert sl.read("s#1", lab) == named("s#1", lab).operator == operator_1()
    assert OperatorView("s#1", lab=lab).operator == operator_1()
    assert answered(capsys, "show", "s#1", "--as", "file", "--folder", str(lab)).strip() == operator_1().to_json()


def test_the_best_is_of_the_result_and_of_the_last_rung(folder: Path) -> None:
    lab = folder / ".syno-lab"
    with Store.open(lab) as store:
        log = store.search("s")
        for number, rung, measure in ((0, "small", 0.6), (1, "small", 0.7), (0, "network", 0.5), (3, "network", 0.4)):
            log.rungs.queue(number, rung, 0, 1)
            taken = log.rungs.take("me")
            assert taken is not None
            log.rungs.record(taken, {"state": "finished", "accuracy": measure}, measure)
    assert find_trial("s#best")[1].number == 0, "of two on the last rung; another rung is another measure"
    place = lab / "searches" / "s"
    place.mkdir(parents=True)
    (place / "result.json").write_text(
        json.dumps({"best": {"0.4": None, "0.25": {"number": 3}, "known": {"number": 0}}})
    )
    assert find_trial("s#best")[1].number == 3, "the best within the largest share of FLOPs that has one"


def test_every_command_takes_every_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "own.json").write_text(operator_1().to_json())
    for form in ("latex", "table", "file"):
        texts = {answered(capsys, "show", name, "--as", form) for name in ("s#1", "s#best", "own.json", "operator_1")}
        assert len(texts) == 1, form
    answered(capsys, "export", "s#best", "--out", "there.json")
    assert sl.read("there.json") == operator_1()
    assert "with s#1: " in answered(capsys, "backbone", "resnet20", "--operator", "s#best")


def test_views_take_every_name(folder: Path) -> None:
    view = Compare("s#1", "conv2d", "s#best")
    assert view.wait(60)
    assert [column["name"] for column in view.columns] == ["s#1", "conv2d", "s#1"]
    results = {row["title"]: [cell["text"] for cell in row["cells"]] for row in view.table if row["group"] == "Results"}
    assert results["accuracy"] == ["0.5", "–", "0.5"]
    shown = OperatorView("s#0")
    assert (shown.operator, shown.name) == (separable(), "s#0")
    shown.show("conv2d")
    assert (shown.operator, shown.name) == (conv2d(), "conv2d")


def test_a_name_of_two_things_is_refused_with_both(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("conv2d", "s#1", "none#1"):
        (folder / name).write_text(grouped().to_json())
    text = "'conv2d' is the name of two things: write known:conv2d for the known operator or ./conv2d for the file"
    assert refused(capsys, "show", "conv2d") == f"syno-lab: {text}"
    text = "'s#1' is the name of two things: write ./s#1 for the file or search:s#1 for the trial"
    with pytest.raises(SynoError, match=f"^{text}$"):
        sl.read("s#1")
    assert sl.read("./conv2d") == sl.read("./s#1") == sl.read("none#1") == sl.read(Path("conv2d")) == grouped()
    assert (sl.read("known:conv2d"), sl.read("search:s#1")) == (conv2d(), operator_1())
    with pytest.raises(StoreError, match=r"^'trial 0' is the name of 2 trials: write search:s#0 or search:t#0$"):
        sl.open_lab().operator("trial 0")
    assert sl.open_lab().operator("trial 1") == operator_1(), "one search alone has it"
    with Store.open(folder / ".syno-lab") as store:
        store.search("search:s", {}).add("x", grouped().to_json(), [], 400, 50)
    with pytest.raises(StoreError, match="is the name of 2 trials: write search:s#0 or search:search:s#0"):
        sl.read("search:s#0")
    assert sl.read("search:search:s#0") == grouped()
    assert sl.read("s#0") == separable()


def test_a_trial_that_failed_is_refused_with_its_reason(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "syno-lab: s#2: expected an operator that trained, found one that diverged: the loss is not a number; "
    for words in (
        ["show", "s#2"],
        ["train", "s#2"],
        ["tune", "s#2"],
        ["network", "s#2"],
        ["export", "s#2", "--out", "x.py"],
    ):
        assert refused(capsys, *words) == f"{line}write search:s#2 to take it all the same", words
    for view in (OperatorView, lambda name: Compare(name, "conv2d"), sl.read):
        with pytest.raises(StoreError, match="diverged: the loss is not a number; write search:s#2 to take it"):
            view("s#2")
    assert sl.read("search:s#2") == grouped()


def test_an_unknown_name_is_refused_with_the_nearest(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder / ".syno-lab"
    for name, line in {
        "s#9": f"no trial 's#9' in {place}: search 's' has the trials 0 to 3; best is 1",
        "t#best": f"no trial 't#best' in {place}: search 't' has the trials 0 to 0; none of them has trained",
        "s#x": f"no trial 's#x' in {place}: search 's' has the trials 0 to 3; best is 1",
        "tt#0": f"no trial 'tt#0' in {place}: expected SEARCH#NUMBER or SEARCH#best, with a search such as t, s",
        "s#baseline": f"no trial 's#baseline' in {place}: search 's' has the trials 0 to 3; best is 1",
        "s": "expected a known operator, an operator file or a trial (SEARCH#12), found 's'; a search has this name: "
        "write s#best for its best operator",
        "conv2": "expected a known operator, an operator file or a trial (SEARCH#12), found 'conv2'; did you mean "
        "conv2d?",
    }.items():
        assert refused(capsys, "show", name) == f"syno-lab: {line}"


def test_sizes_of_a_trial_are_those_of_its_layers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert named("s#1").places == [(FIRST, LAYER), ("body.conv9", LAYER | {"H": 10})]
    assert not named("s#0").places, "stored without sizes"
    flops = operator_1().flops(LAYER)
    told = json.loads(answered(capsys, "show", "s#best", "--json", "-"))
    assert (told["binding"], told["flops"], told["layer"]) == (LAYER, flops, FIRST)
    assert f"with N=1, C_in=32, C_out=48, H=20, W=12, k_1=3, g=8, s=2, the sizes of {FIRST}:" in answered(
        capsys, "show", "s#1"
    )
    assert answered(capsys, "show", "s#1", "--as", "source").strip() == operator_1().to_torch_source(LAYER).strip()
    other = answered(capsys, "show", "s#1", "--as", "source", "--bind", "H=10").strip()
    assert other == operator_1().to_torch_source(LAYER | {"H": 10}).strip()
    assert answered(capsys, "show", "s#1", "--as", "python") == answered(capsys, "show", "operator_1", "--as", "python")
    answered(capsys, "export", "s#1", "--out", "there.py")
    assert "32" in (folder / "there.py").read_text()
    (task,) = _tasks(["s#1"], None, ["H=10"], "float32")
    assert (task.label, dict(task.binding)) == ("s#1", LAYER | {"H": 10})
    view = OperatorView("s#1")
    assert dict(view.binding) == LAYER
    assert [name for name, _ in view.choices["places"]][:2] == [FIRST, "body.conv9"]
    compared = Compare("s#1", "conv2d")
    assert compared.sizes | LAYER == compared.sizes
    assert not compared.example
    titles = [table.title for table in why_tables(read_why(folder / ".syno-lab", "s#1"))]
    assert any(title.startswith("The operator alone") and "H=20" in title for title in titles), titles


def test_other_orders_and_relatives_of_known_operators_are_named(folder: Path) -> None:
    build = Build(INPUT, OUTPUT, IMAGE, ["k_1=3"], fixed_io_pairs=[(0, 0)])  # a window over the rows alone
    n, o, h, w = build.output
    c, p = build.reduce("C_in"), build.reduce("k_1")
    build.contract(share=[c, p], give=[o])
    reversed_order, relative = separable_reversed(), build.finish(n, c, build.unfold(h, p), w)
    with Store.open(folder / ".syno-lab") as store:
        log = store.search("s")
        numbers = [log.add(str(one), one.to_json(), [], 400, 50) for one in (reversed_order, relative)]
    title, other = (why_text(read_why(folder / ".syno-lab", f"s#{number}")).splitlines()[0] for number in numbers)
    assert title.endswith(", which is separable, the other order")
    (near, *_) = nearest(relative)
    assert f"; the nearest known operator is {near.name}: {near.differences[0][0]}" in other
    assert OperatorView(f"s#{numbers[0]}").name == f"s#{numbers[0]}"
    assert OperatorView(reversed_order).name == "separable, the other order"
    # 1x1, then a depthwise window of 3x3.
    sizes = {"N": 2, "C_in": 3, "C_out": 5, "H": 6, "W": 7, "k_1": 3}
    rng = np.random.default_rng(0)
    x, depthwise, pointwise = (rng.normal(size=shape) for shape in ((2, 3, 6, 7), (5, 3, 3), (3, 5)))
    mixed = torch.einsum("nchw,co->nohw", torch.tensor(x), torch.tensor(pointwise))
    wanted = torch.nn.functional.conv2d(mixed, torch.tensor(depthwise)[:, None], padding=1, groups=5)
    np.testing.assert_allclose(reversed_order.reference(x, depthwise, pointwise, binding=sizes), wanted, atol=1e-12)


def test_the_sizes_of_a_trial_are_stored(folder: Path) -> None:
    with Store.look(folder / ".syno-lab") as store:
        assert store.search("s").sizes() == {1: SIZES}
        assert store.search("t").sizes() == {}
    assert not find_trial("t#0")[1].places


def test_a_search_stores_the_sizes_of_its_layers() -> None:
    space = Space(settings())
    sizes = space.sizes(conv2d())
    costs = space.fitting_costs(conv2d())
    rest = space.baseline.flops - space.replaced_flops
    assert rest + sum(layer.number * conv2d().flops(layer.binding) for layer in sizes) == costs.flops
    assert {layer.name for layer in sizes} <= {site.name for site in space.sites}
