"""The lab's own scheduler and worker, and what Dask does with a job that is sent by more than one."""

from __future__ import annotations

from pathlib import Path

import job_kinds
import pytest
from labs import show_kinds

from syno_lab.evaluate.jobs import Lab, alive
from syno_lab.evaluate.jobs.cluster import FILE_NAME, Cluster, Settings
from syno_lab.evaluate.jobs.dispatch import SLOT, connect, send


def gone(pids: list[int]) -> bool:
    return not any(alive.identity(pid) for pid in pids)


def test_a_cluster_whose_starter_was_killed_before_it_was_written_down_is_not_left(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, Settings(slots=1))
    other = Cluster(tmp_path / "other", Settings(slots=1))
    (tmp_path / "other").mkdir()
    try:
        cluster.address()
        other.address()
        lost = list(cluster.processes().values())
        assert len(lost) == 2
        (tmp_path / FILE_NAME).unlink()
        cluster.address()
        assert gone(lost)
        assert cluster.is_up()
        assert other.is_up(), "that of another folder is not ours"
    finally:
        cluster.stop()
        other.stop()
    assert not cluster.processes()


def test_what_another_client_still_holds_is_run_again_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask runs one key once for as long as any client holds its future, and two may take turns in holding it."""
    show_kinds(monkeypatch, job_kinds.VARIABLE)
    with Lab.open(tmp_path, slots=1, start=False) as lab:
        before = lab.submit("nothing")
        after = lab.submit("nothing", after=[before.id])
        address = lab.cluster.address()
        clients = [connect(address) for _ in range(2)]
        try:
            held = [send(client, tmp_path, after.record(), (SLOT,)) for client in clients]
            for future in held:
                future.result(timeout=60)
            assert after.record().state == "waiting", "it came too early, and nothing was done"
            send(clients[0], tmp_path, before.record(), (SLOT,)).result(timeout=60)
            assert before.record().state == "finished"
            send(clients[0], tmp_path, after.record(), (SLOT,)).result(timeout=60)
            assert after.record().state == "waiting", "Dask runs it again: is_again is no longer needed"
            send(clients[0], tmp_path, after.record(), (SLOT,), is_again=True).result(timeout=60)
            assert after.record().state == "finished"
        finally:
            for client in clients:
                client.close()
            lab.shutdown()
