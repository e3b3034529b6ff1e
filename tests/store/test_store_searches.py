"""What a store keeps of searches, files of other versions, and places where a store may not lie."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from syno_lab.errors import StoreError
from syno_lab.protocol import SearchStep
from syno_lab.store import SearchLog, Store
from syno_lab.store import place as places
from syno_lab.store.schema import SCHEMA_VERSION

STEPS = SearchStep("merge", ("merge",)), SearchStep("share", ("share",), steps=2)


def fill(log: SearchLog, count: int) -> None:
    for index in range(count):
        assert log.add(f"fp-{index}", f'{{"name": {index}}}', STEPS, 1000 - index, 10 + index) == index


def finished(accuracy: float | None, **more: object) -> dict[str, object]:
    return {"state": "finished", "accuracy": accuracy, "curve": [{"epoch": 1}], **more}


class TestSearches:
    def test_everything_is_there_after_reopening(self, tmp_path: Path) -> None:
        with Store.open(tmp_path) as store:
            log = store.search("first", {"seed": 1})
            fill(log, 3)
            assert log.record(1, finished(0.5, wall_s=2.5, cpu_s=4.0), job=7)
            assert log.record(0, {"state": "diverged", "reason": "the loss is not a number", "accuracy": float("nan")})
        with Store.open(tmp_path) as store:
            log = store.search("first")
            assert log.settings == {"seed": 1}
            zero, one, two = log.trials()
            assert log.trial(1) == one
            assert (one.state, one.accuracy, one.reward, one.position, one.job) == ("finished", 0.5, 0.5, 0, 7)
            assert (one.wall_s, one.cpu_s, one.flops, one.params) == (2.5, 4.0, 999, 11)
            assert (one.steps, one.lengths) == (("merge", "share"), (1, 2))
            assert one.outcome == finished(0.5, wall_s=2.5, cpu_s=4.0)
            assert (zero.state, zero.reason, zero.accuracy, zero.reward, zero.position) == (
                "diverged",
                "the loss is not a number",
                None,
                0.0,
                1,
            )
            assert (two.state, two.outcome, two.reward, two.ended) == ("waiting", None, None, None)
            assert log.told() == [('{"name": 1}', 0.5), ('{"name": 0}', 0.0)], "in the order of telling"
            assert sorted(one.state for one in log.trials()) == ["diverged", "finished", "waiting"]
            assert [log.name for log in store.searches()] == ["first"]

    def test_steps_are_kept_whole(self, tmp_path: Path) -> None:
        steps = (SearchStep("a @1", ("a", "b"), steps=2, words=(("a", 2), ("b é", 1))), SearchStep("end", (), steps=0))
        with Store.open(tmp_path) as store:
            log = store.search("s", {})
            assert log.add("fp", "{}", steps, 1, 1) == 0
            assert log.add("fp", "{}", steps[:1], 1, 1) == 0, "the first way counts"
            assert store.search("other", {}).add("fp", "{}", (), 1, 1) == 0
        with Store.open(tmp_path) as store:
            assert store.search("s").trial(0).steps == ("a @1", "end")
            assert store.search("s").taken() == {0: steps}
            assert store.search("other").taken() == {0: ()}
        with sqlite3.connect(tmp_path / "results.sqlite") as file:
            file.execute("UPDATE syno_search_trials SET steps=replace(steps, '\"steps\":2', '\"steps\":3')")
        with Store.open(tmp_path) as store, pytest.raises(StoreError, match="a row differs from what was written"):
            store.search("s").taken()

    def test_a_trial_is_told_once(self, tmp_path: Path) -> None:
        with Store.open(tmp_path) as store:
            log = store.search("s", {})
            fill(log, 2)
            assert log.add("fp-1", "{}", [], 5, 5) == 1, "the same operator keeps its number"
            assert not log.record(0, {"state": "interrupted", "reason": "paused"})
            assert log.told() == []
            assert log.record(0, finished(0.25), reward=0.75)
            assert not log.record(0, finished(0.9))
            assert log.told() == [('{"name": 0}', 0.75)]
            assert log.trial(0).accuracy == 0.25

    def test_refusals(self, tmp_path: Path) -> None:
        with Store.open(tmp_path) as store:
            log = store.search("s", {"a": 1})
            fill(log, 1)
            for number, outcome, message in (
                (5, finished(0.5), "search 's' has no trial 5: add it first"),
                (0, {"accuracy": 0.5}, "trial 0 of search 's': expected the state of an outcome, found None"),
                (0, {"state": "waiting"}, "expected the state of an outcome, found 'waiting'"),
                (0, finished(1.5), "expected a reward from 0 to 1"),
                (0, finished(0.5, reason=3), r"trial 0 of search 's': Expected `str \| null`, got `int`"),
                (0, finished(0.5, extra=object()), "outcome.extra: expected text, numbers, lists or mappings"),
            ):
                with pytest.raises(StoreError, match=message):
                    log.record(number, outcome)
            assert [one.state for one in log.trials()].count("waiting") == 1
            with pytest.raises(StoreError, match="a trial's FLOPs: expected a whole number"):
                log.add("x", "{}", [], -1, 0)
            with pytest.raises(StoreError, match="made with other settings: a was 1, is 2"):
                store.search("s", {"a": 2})
            with pytest.raises(StoreError, match=r"no search 't' in .*; there is 's'"):
                store.search("t")
            with pytest.raises(StoreError, match="no axis 'beauty': expected one of accuracy"):
                log.front(("accuracy", "beauty"))
            with pytest.raises(StoreError, match="a front in latency needs the target"):
                log.front(("accuracy", "latency_ms"))
            with pytest.raises(StoreError, match="expected latency_ms in milliseconds above 0, found 0"):
                log.record_latency(0, "llvm", {"latency_ms": 0})

    def test_the_front_is_what_nothing_beats(self, tmp_path: Path, rng: random.Random) -> None:
        with Store.open(tmp_path) as store:
            log = store.search("s", {})
            known = {}
            for index in range(60):
                flops, accuracy = rng.randrange(1, 30), rng.randrange(20) / 20
                log.add(f"fp-{index}", "{}", [], flops, 1)
                state = rng.choice(["finished", "finished", "pruned"])
                log.record(index, {"state": state, "accuracy": accuracy})
                if state == "finished":
                    known[index] = (accuracy, flops)
                    log.record_latency(index, "llvm", {"latency_ms": 100 - flops, "trials": 3})
            best = {
                i
                for i, (a, f) in known.items()
                if not any(b >= a and g <= f and (b, g) != (a, f) for b, g in known.values())
            }
            assert {trial.number for trial in log.front()} == best
            fast = {
                i
                for i, (a, f) in known.items()
                if not any(b >= a and g >= f and (b, g) != (a, f) for b, g in known.values())
            }
            assert {trial.number for trial in log.front(("accuracy", "latency_ms"), target="llvm")} == fast
            assert log.latencies("llvm")[min(known)] == {"latency_ms": 100 - known[min(known)][1], "trials": 3}

    def test_any_optuna_storage_is_given_the_trials(self, tmp_path: Path) -> None:
        import optuna

        url = f"sqlite:///{tmp_path}/elsewhere.sqlite"
        with Store.open(tmp_path) as store:
            log = store.search("s", {})
            fill(log, 3)
            log.record(0, finished(0.5))
            log.record(1, {"state": "oom", "reason": "no room"})
            assert log.publish(url) == 2
            log.record(2, finished(0.75))
            assert log.publish(url) == 1
            assert log.publish(url) == 0
            study = optuna.load_study(study_name="s", storage=url)
            assert [(t.state.name, t.values, t.user_attrs["reason"]) for t in study.trials] == [
                ("COMPLETE", [0.5, 1000.0], ""),
                ("FAIL", None, "no room"),
                ("COMPLETE", [0.75, 998.0], ""),
            ]
            with pytest.raises(StoreError, match="cannot be used"):
                log.publish("sqlite:////no/such/folder/x.sqlite")

    def test_a_flipped_digit_is_noticed(self, tmp_path: Path) -> None:
        with Store.open(tmp_path) as store:
            log = store.search("s", {})
            fill(log, 1)
            log.record(0, finished(0.5, note="0.123456"))
        file = tmp_path / "results.sqlite"
        data = file.read_bytes()
        assert data.count(b"0.123456") == 1
        file.write_bytes(data.replace(b"0.123456", b"0.923456"))
        with Store.open(tmp_path) as store, pytest.raises(StoreError, match="a row differs from what was written"):
            store.search("s").trials()

    @pytest.mark.warm
    def test_four_processes_at_once(self, tmp_path: Path) -> None:
        code = (
            "import sys\n"
            "from syno_lab.store import Store\n"
            "with Store.open(sys.argv[1]) as store:\n"
            "    log = store.search('s', {})\n"
            "    for index in range(15):\n"
            "        number = log.add(f'fp-{index}', '{}', [], 1, 1)\n"
            "        if log.record(number, {'state': 'finished', 'accuracy': 0.5}):\n"
            "            print(number)\n"
        )
        words = [sys.executable, "-c", code, str(tmp_path)]
        rivals = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
        answers = [rival.communicate(timeout=240) for rival in rivals]
        assert [errors for _, errors in answers] == [""] * 4
        assert sorted(int(n) for output, _ in answers for n in output.split()) == list(range(15)), "each told once"
        with Store.open(tmp_path) as store:
            assert len(store.search("s").told()) == 15


class TestVersions:
    def test_a_file_of_another_version_is_refused_and_left_as_it_is(self, tmp_path: Path) -> None:
        path = tmp_path / "results.sqlite"
        Store.open(path).close()
        for version, todo in (
            (SCHEMA_VERSION - 1, "an older Syno Lab; use another folder"),
            (SCHEMA_VERSION + 1, "a newer Syno Lab; update, or use another folder"),
        ):
            with sqlite3.connect(path) as file:
                file.execute(f"PRAGMA user_version={version}")
            file.close()
            before = path.read_bytes()
            for open_store in (Store.look, Store.open):
                with pytest.raises(StoreError, match=f"has version {version}, this Syno Lab reads .* made by {todo}$"):
                    open_store(path)
            assert path.read_bytes() == before


class TestPlaces:
    MOUNTS = (
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "30 22 0:5 / /home rw shared:2 - nfs4 server:/home rw\n"
        "31 30 0:6 / /home/local rw - xfs /dev/vdb rw\n"
        "32 22 0:7 / /media/my\\040share rw - cifs //server/share rw\n"
        "nonsense\n"
    )

    @pytest.mark.parametrize(
        ("path", "kind"),
        [
            ("/home/me/lab", "nfs4"),
            ("/home/local/lab", "xfs"),
            ("/homely/lab", "ext4"),
            ("/media/my share/lab", "cifs"),
            ("/lab", "ext4"),
        ],
    )
    def test_the_file_system_of_a_path(self, path: str, kind: str) -> None:
        assert places.file_system(Path(path), self.MOUNTS) == kind

    def test_a_network_file_system_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = tmp_path / "mounts"
        real = tmp_path.resolve()
        table.write_text(f"22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 0:5 / {real} rw - nfs4 server:/home rw\n")
        monkeypatch.setattr(places, "_MOUNTS", table)
        with pytest.raises(StoreError, match=r"on a network file system \(nfs4\).*choose a folder on a local disk"):
            Store.open(tmp_path / "lab.sqlite")
        assert not (tmp_path / "lab.sqlite").exists()
        monkeypatch.setenv(places.VARIABLE, "1")
        Store.open(tmp_path / "lab.sqlite").close()


@pytest.mark.parametrize(
    "name", ["..", ".", "", "../other", "a/b", "a\\b", ".hidden", "a\0b", "a\nb", "\x1b[2J", "x" * 300, "\ud800"]
)
@pytest.mark.parametrize("settings", [None, {}])
def test_names_that_can_be_no_folder_s_are_refused(
    tmp_path: Path, name: str, settings: dict[str, object] | None
) -> None:
    with Store.open(tmp_path / "lab.sqlite") as store:
        with pytest.raises(
            StoreError, match=r"expected the name of a search, which can be one of a folder, found"
        ) as error:
            store.search(name, settings)
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 400
        assert store.searches() == []
        assert store.search("Ein Name … ü 1.2", {}).name == "Ein Name … ü 1.2"
