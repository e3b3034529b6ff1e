"""Which cluster a lab connects to, and whom it ends: never what its folder says, which may be somebody else's."""

from __future__ import annotations

import json
import os
import secrets
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from syno_lab.errors import JobError, SynoError
from syno_lab.jobs import Lab, endpoint, tls
from syno_lab.jobs.cluster import Cluster, Settings
from syno_lab.jobs.endpoint import Endpoint
from syno_lab.processes import alive


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's settings, for one test."""
    monkeypatch.setenv("SYNO_LAB_CONFIG", str(tmp_path / "settings"))
    (tmp_path / "settings").mkdir(mode=0o700)
    return tmp_path / "settings"


class TestSettings:
    def test_the_command_line_goes_before_the_settings_which_name_the_files(self, settings: Path) -> None:
        assert endpoint.named(None) is None
        assert endpoint.named("tls://a:1") == Endpoint("tls://a:1")
        (settings / "cluster.toml").write_text('address = "tls://b:2"\nca = "ca.pem"\nkey = "/k.pem"\n')
        files = {"ca": str(settings / "ca.pem"), "key": "/k.pem"}
        assert endpoint.named(None) == Endpoint("tls://b:2", **files)
        assert endpoint.named("tls://a:1") == Endpoint("tls://a:1", **files)

    @pytest.mark.parametrize(
        ("text", "found"),
        [("address = ", "Invalid value"), ('adress = "x"', "found 'adress'"), ("address = 3", "found 'address'")],
    )
    def test_malformed(self, settings: Path, text: str, found: str) -> None:
        (settings / "cluster.toml").write_text(text)
        with pytest.raises(JobError, match=f"cluster.toml: expected .* under address|.* with address.*{found}"):
            endpoint.named(None)

    def test_what_others_may_write_is_not_read(self, settings: Path, tmp_path: Path) -> None:
        file = settings / "cluster.toml"
        file.write_text('address = "tls://b:2"')
        file.chmod(0o666)
        with pytest.raises(SynoError, match="others may write to it; it is not read"):
            endpoint.named(None)
        key = tmp_path / "key.pem"
        tls.make(key)
        assert key.stat().st_mode & 0o777 == 0o600
        key.chmod(0o602)
        with pytest.raises(SynoError, match=r"key.pem: others may write to it"):
            Endpoint("tls://b:2", str(key), str(key)).security()

    def test_without_tls_only_on_this_machine(self) -> None:
        for address in ("tcp://10.0.0.1:8786", "10.0.0.1:8786", "ws://10.0.0.1:8786"):
            with pytest.raises(JobError, match=r"cluster at '.*' is without TLS, .* start it with --tls-ca-file"):
                Endpoint(address)
        assert Endpoint("tcp://127.0.0.1:8786").security().require_encryption is False

    def test_tls_without_files(self, settings: Path) -> None:
        with pytest.raises(JobError, match=r"expected TLS files for the Dask cluster at tls://b:2, found none: name "):
            Endpoint("tls://b:2").security()

    def test_what_a_worker_gives_its_jobs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(endpoint.VARIABLE, '{"address": "tls://b:2", "ca": "/ca.pem"}')
        assert endpoint.inherited() == Endpoint("tls://b:2", "/ca.pem")
        monkeypatch.setenv(endpoint.VARIABLE, '{"adress": "x"}')
        with pytest.raises(JobError, match="SYNO_LAB_CLUSTER: expected the endpoint from a Dask worker, found "):
            endpoint.inherited()
        assert endpoint.passed_on() == {}, "this is no worker"


def test_a_certificate_holds_whatever_the_clock_says(tmp_path: Path) -> None:
    from cryptography import x509

    tls.make(tmp_path / "key.pem")
    tls.make(tmp_path / "key.pem")
    certificate = x509.load_pem_x509_certificate((tmp_path / "key.pem").read_bytes())
    assert (certificate.not_valid_before_utc.year, certificate.not_valid_after_utc.year) == (2000, 9999)
    context = ssl.create_default_context(cafile=tmp_path / "key.pem")
    context.load_cert_chain(tmp_path / "key.pem")
    assert [path.name for path in tmp_path.iterdir()] == ["key.pem"]


def test_a_folder_from_somebody_else_says_nothing_of_a_cluster(tmp_path: Path) -> None:
    """An address in it is not connected to, and processes that it names are not ended."""
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with socket.create_server(("127.0.0.1", 0)) as stranger:
            stranger.settimeout(0.2)
            address = f"tcp://127.0.0.1:{stranger.getsockname()[1]}"
            victim = alive.identity(bystander.pid)
            state = {"foreign": address, "address": address, "place": alive.place(), "boot": alive.boot()}
            (tmp_path / "cluster.json").write_text(json.dumps({**state, "scheduler": victim, "worker": victim}))
            (tmp_path / "scheduler.json").write_text(json.dumps({"address": address}))
            (tmp_path / "cluster.lock").symlink_to(tmp_path / "kept")
            (tmp_path / "kept").write_text("kept")
            with Lab.open(tmp_path) as lab:
                assert lab.cluster.foreign() is None
                assert not lab.cluster.is_up()
                assert not lab.cluster.processes()
                lab.shutdown()
            with pytest.raises(TimeoutError):
                stranger.accept()
        assert bystander.poll() is None
        assert (tmp_path / "kept").read_text() == "kept"
    finally:
        bystander.kill()
        bystander.wait()


def test_a_lease_ends_only_what_has_a_token_that_was_drawn(tmp_path: Path) -> None:
    drawn, other = secrets.token_hex(16), "worker of /home/me/lab"
    code = "import time; time.sleep(600)"
    running = [
        subprocess.Popen([sys.executable, "-c", code], env={**os.environ, alive.TOKEN_VARIABLE: token})
        for token in (drawn, other)
    ]
    try:
        for token in (drawn, other):
            while not list(alive.holders(token)):
                pass
            alive.end_attempt(token)
        assert running[0].wait(30) == -9
        assert running[1].poll() is None
        assert alive.pid_of("9" * 5000) == alive.pid_of("junk:1") == 0
    finally:
        for one in running:
            one.kill()
            one.wait()


def test_labs_that_are_gone_are_forgotten(settings: Path, tmp_path: Path) -> None:
    gone, here = (Cluster(tmp_path / name, Settings(slots=1)) for name in ("gone", "here"))
    (tmp_path / "here").mkdir()
    gone.remember("tls://b:2")
    here.remember("tls://b:2")
    assert (gone.foreign(), here.foreign()) == ("tls://b:2", "tls://b:2")
    here._forget_others()
    assert not gone.home.exists()
    assert here.foreign() == "tls://b:2"


@pytest.mark.skipif(sys.platform != "linux", reason="names of files that are no text are Linux's")
def test_a_lab_s_folder_may_have_a_name_that_is_no_text(settings: Path, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"lab-\xff")
    folder.mkdir()
    cluster = Cluster(folder, Settings(slots=1))
    cluster.remember("tls://b:2")
    cluster._forget_others()
    assert cluster.foreign() == "tls://b:2"
