"""A search of whole networks: αNAS's evolution through the lab's search, with real trainings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import answered, refused

from syno_lab.alpha import Properties
from syno_lab.store import Store
from syno_lab.store.searches import SearchTrial
from syno_lab.systems import read_operator

SMALL = (
    *("--system", "alpha", "--backbone", "cnn", "--data", "digits", "--width", "4", "--epochs", "1"),
    *("--images", "64", "--test-images", "32", "--in-process", "--seeds", "0", "--to-the-end"),
)


def test_networks_are_searched_and_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ("--folder", str(tmp_path), "--name", "networks")
    first = json.loads(answered(capsys, "search", *SMALL, *place, "--trials", "3", "--json", "-"))
    assert first["settings"]["method"] == "pareto"
    assert first["settings"]["system"] == "syno-lab-alpha"
    assert first["settings"]["rungs"] is False
    more = json.loads(answered(capsys, "search", "--continue", "--in-process", *place, "--trials", "6", "--json", "-"))
    assert more["recorded"][:3] == first["recorded"]
    assert len(more["recorded"]) == 6
    # The seed comes first, then edits of what is known; no structure is trained twice.
    networks = [read_operator(trial.operator).variant for trial in trials_in(tmp_path, "networks")]
    assert networks[0].edits == ()
    assert all(network.edits for network in networks[1:])
    assert len({network.key for network in networks}) == 6
    for one, network in zip(trials_in(tmp_path, "networks"), networks, strict=True):
        assert (one.flops, one.params) == (network.flops(), network.params())
        assert one.flops <= networks[0].flops()
    # Other words lead to the same search.
    other = (
        *SMALL,
        "--folder",
        str(tmp_path),
        "--name",
        "again",
        "--method",
        "pareto",
        "--objectives",
        "flops, params",
    )
    answered(capsys, "search", *other, "--trials", "2", "--json", "-")
    again = [read_operator(trial.operator).variant.key for trial in trials_in(tmp_path, "again")]
    assert again == [network.key for network in networks[:2]]


def test_latencies_are_measured_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ("--folder", str(tmp_path), "--name", "fast")
    answered(
        capsys, "search", *SMALL, *place, "--objectives", "params, latency-pytorch", "--trials", "3", "--json", "-"
    )
    first = trials_in(tmp_path, "fast")
    answered(capsys, "search", "--continue", "--in-process", *place, "--trials", "5", "--json", "-")
    found = trials_in(tmp_path, "fast")
    assert [trial.operator for trial in found[:3]] == [trial.operator for trial in first]
    with Store.open(tmp_path) as store:
        kept = store.search("fast").latencies("pytorch")
    for trial in found:
        assert trial.outcome is not None
        assert trial.outcome["latency_ms"] > 0
        assert kept[trial.number]["latency_ms"] == trial.outcome["latency_ms"]


@pytest.mark.parametrize("mutations", ["random", "primer", "automl_zero"])
def test_rivals_of_properties_are_searched_alike(
    mutations: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ("--folder", str(tmp_path), "--name", "rivals", "--system-option", f"mutations={mutations}")
    answered(capsys, "search", *SMALL, *place, "--trials", "4", "--json", "-")
    networks = [read_operator(trial.operator).variant for trial in trials_in(tmp_path, "rivals")]
    assert len({network.key for network in networks}) == 4


def test_every_block_meets_the_wish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ("--folder", str(tmp_path), "--name", "wished", "--wants", "C>=a, H>=m, W>=m", "--method", "random")
    answered(capsys, "search", *SMALL, *place, "--trials", "5", "--json", "-")
    wanted = Properties(mixing=("xxxx", "xmxx", "xxmx", "xxxa"))
    for trial in trials_in(tmp_path, "wished"):
        for block in read_operator(trial.operator).variant.network.blocks:
            assert wanted.distances(block.graph)["mixing"] == 0


def test_pgraphs_are_searched_along_the_front(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for word in SMALL if word not in ("--system", "alpha")]
    place = ("--folder", str(tmp_path), "--name", "front", "--method", "pareto", "--objectives", "params")
    found = json.loads(answered(capsys, "search", *words, *place, "--trials", "3", "--json", "-"))
    assert found["settings"]["objectives"] == ["params"]
    assert len({trial.fingerprint for trial in trials_in(tmp_path, "front")}) == 3


def trials_in(folder: Path, name: str) -> list[SearchTrial]:
    with Store.open(folder) as store:
        return store.search(name).trials()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--objectives", "speed"),
            "objectives: expected some of flops, params, latency, latency-pytorch, found 'speed'",
        ),
        (("--method", "random", "--objectives", "flops"), "objectives: expected the method pareto beside them, found"),
        (("--system", "alpha,canvas"), "system: expected whole networks alone, or operators for layers alone, found"),
        (("--rungs",), "rungs: expected operators for layers, found whole networks of αNAS; leave it out"),
        (
            ("--tune-within", "1", "--tune-what", "layers", "--seeds", "1"),
            "tuning of layers: expected operators for layers, found whole networks of αNAS",
        ),
        (("--wants", "Q>=m"), "wants: expected an input axis of [B, H, W, C], found 'Q'"),
        (
            ("--wants", "H>=a"),
            "wants: expected a wish that the network's own blocks meet, found 'H>=a'; block 0 has axxa am",
        ),
        (("--system-option", "mutations"), "--system-option: expected NAME=VALUE such as mutations=primer, found 'mut"),
        (("--system-option", "way=primer"), "option of αNAS: expected mutations, relax, selection, found 'way'"),
        (("--system-option", "relax=all"), "option relax of αNAS: expected one of paper, code, found 'all'"),
        (("--untrained",), "untrained: expected a system with a probe, found αNAS"),
    ],
)
def test_one_line_for_what_networks_cannot_have(
    arguments: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--system", "alpha", "--backbone", "cnn", "--data", "digits", "--folder", str(tmp_path), "--minutes", "1")
    assert message in refused(capsys, "search", *words, *arguments)
