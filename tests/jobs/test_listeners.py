"""All that listens where the lab runs: on loopback alone, and nobody comes in without a secret."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import job_kinds
import psutil
import pytest
from labs import PATIENCE_S, free_port, show_kinds, until

from syno_lab.commands.lab import notebooks_folder
from syno_lab.jobs import Lab
from syno_lab.tuning.board import local_board

pytestmark = pytest.mark.cold

LECTURE = notebooks_folder().parent / "docs" / "lecture.ipynb"

#: What lets somebody in without a secret, or seems to, with the reason why it may.
OPEN_PORTS = {
    "zmq NULL": "takes from processes that a cell has forked what they print; a kernel drops what has no random word",
    "tvm": "TVM's tracker and server have no secret at all; docs/security.md says who can reach them and when",
}
#: Pages that answer anybody, by the beginnings of their addresses.
OPEN_ROUTES = {
    "/login": "asks for the secret",
    "/logout": "forgets it",
    "/static/": "files of the program, the same everywhere",
    "/voila/static/": "files of the program",
    "/voila/templates/": "files of the program",
    "/voila/themes/": "files of the program",
    "/api": "the version of the program",
    "/favicon.ico": "a picture of the program",
    "/custom/": "the user's own style sheet",
    "/x/favicon": "a picture of the program",
}

#: JupyterLab refuses, and then fails to say so: there is no answer to wait for.
SILENT, SILENCE_S = "/lab/api/licenses/", 3.0

#: Notes the routes of every web application of Tornado in a process, as `sitecustomize`.
NOTES_ROUTES = """\
import os
if "ROUTES" in os.environ:
    import tornado.web
    process = tornado.web._ApplicationRouter.process_rule
    def note(self, rule):
        pattern = getattr(getattr(rule.matcher, "regex", None), "pattern", None)
        if pattern is not None:
            with open(os.path.join(os.environ["ROUTES"], str(os.getpid())), "a") as file:
                print(pattern, file=file)
        return process(self, rule)
    tornado.web._ApplicationRouter.process_rule = note
"""


@dataclass(frozen=True)
class Listener:
    """A socket on which a process listens."""

    ip: str
    port: int
    process: psutil.Process

    @property
    def words(self) -> str:
        """What the process is."""
        return " ".join(self.process.cmdline())

    def speaks(self) -> str:
        """The protocol, by what it says to somebody without a secret: http, tls, zmq with a mechanism, tvm, or ?."""
        if any(module in self.words for module in ("syno_lab.processes.serve", "syno_lab.tuning")):
            return "tvm"
        with contextlib.suppress(OSError), socket.create_connection((self.ip, self.port), 5) as link:
            link.sendall(b"GET / HTTP/1.0\r\n\r\n")
            if link.recv(100).startswith(b"HTTP/"):
                return "http"
        for mechanism in ("NULL", "CURVE"):
            with contextlib.suppress(OSError):
                if self._zmq(mechanism) == mechanism:
                    return f"zmq {mechanism}"
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            contextlib.suppress(OSError),
            socket.create_connection((self.ip, self.port), 5) as link,
            context.wrap_socket(link) as secure,
        ):
            # In TLS 1.3 the server looks at the certificate after the handshake, and may have hung up by now.
            with contextlib.suppress(ssl.SSLError, ConnectionError):
                secure.sendall(b"GET / HTTP/1.0\r\n\r\n")
                return "?" if secure.recv(100) else "tls"
            return "tls"
        return "?"

    def _zmq(self, mechanism: str) -> str:
        """The mechanism of its greeting to one of this (rfc.zeromq.org/spec/23): CURVE wants the server's key."""
        with socket.create_connection((self.ip, self.port), 5) as link, link.makefile("rb") as said:
            link.sendall(b"\xff".ljust(9, b"\0") + b"\x7f\x03\x00" + mechanism.encode().ljust(52, b"\0"))
            return said.read(32)[12:].rstrip(bytes(1)).decode("ascii", "replace")


def listeners(process: psutil.Process) -> list[Listener]:
    """Of a process and of all that it has started; what is only bound, and abstract sockets, are counted too."""
    found = []
    for one in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            for link in one.net_connections(kind="all"):
                if link.family == socket.AF_UNIX:
                    assert not str(link.laddr).startswith(("@", "\0")), f"{one.cmdline()}: {link} is for everybody"
                elif link.status == psutil.CONN_LISTEN or (link.type == socket.SOCK_DGRAM and not link.raddr):
                    found.append(Listener(link.laddr.ip, link.laddr.port, one))
    return found


@pytest.fixture
def routes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which every process that this test starts notes its routes."""
    hook, folder = tmp_path / "hook", tmp_path / "routes"
    hook.mkdir()
    folder.mkdir()
    (hook / "sitecustomize.py").write_text(NOTES_ROUTES)
    monkeypatch.setenv("ROUTES", str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(hook), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(str(hook))
    return folder


@contextlib.contextmanager
def started(home: Path, *words: str) -> Iterator[Callable[[str], str]]:
    """A server of Jupyter's; a function gives what a pattern finds first in its log, once it is there."""
    home.mkdir()
    log = home / "log"
    names = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime"}
    own = {"HOME": str(home), "IPYTHONDIR": str(home / "ipython"), **{key: str(home / n) for key, n in names.items()}}
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", *words], cwd=home, env={**os.environ, **own}, stdout=output, stderr=output
        )

    def find(pattern: str) -> str:
        deadline = time.monotonic() + 2 * PATIENCE_S  # JupyterLab imports for long on a loaded machine
        while server.poll() is None and not re.search(pattern, log.read_text()) and time.monotonic() < deadline:
            time.sleep(0.1)
        match = re.search(pattern, log.read_text())
        assert match is not None, log.read_text()[-2000:]
        return match.group(1)

    try:
        yield find
    finally:
        tree = psutil.Process(server.pid).children(recursive=True)
        for one in (psutil.Process(server.pid), *tree):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        server.wait()


class Stranger:
    """Somebody in a browser of its own who knows no secret, but can ask for a login page, and stays where it is."""

    def __init__(self, base: str) -> None:
        self.base = base
        cookies = CookieJar()
        self._open = urllib.request.build_opener(Stay, urllib.request.HTTPCookieProcessor(cookies)).open
        self._headers: dict[str, str] = {}
        self.ask("GET", "/login")
        for cookie in cookies:
            if cookie.name == "_xsrf":
                self._headers["X-XSRFToken"] = cookie.value or ""

    def ask(self, method: str, address: str) -> int:
        """The status of an answer; 0 where there is none, as when something is done first."""
        data = b"{}" if method == "POST" else None
        request = urllib.request.Request(self.base + address, data=data, headers=self._headers, method=method)
        try:
            with self._open(request, timeout=SILENCE_S if address.startswith(SILENT) else PATIENCE_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except TimeoutError:
            return 0


class Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: where it leads is asked for itself."""

    def redirect_request(self, *given: Any) -> None:
        """Give no request to go on with."""


def address_of(pattern: str) -> str:
    """An address that the pattern of a route fits: groups that may be left out are, others are their first choice."""
    text = re.sub(r"\(\?[!=].*?\)", "", pattern.removesuffix("$"))
    text = re.sub(r"\\[wd]|\[(?:[^\]\\]|\\.)*\]|\.(?=[*+)])", "x", text)  # one letter of a class
    text = re.sub(r"(?<=[x}])(?:[*+]\??|\{[\d,]*\})", "", text)
    while (group := re.search(r"\((\?P<\w+>|\?:)?([^()]*)\)([*+?]?)", text)) is not None:
        first = "" if group[3] == "?" else group[2].partition("|")[0]
        text = text[: group.start()] + first + text[group.end() :]
    found = re.sub(r"[^\\]\?", "", text).replace("\\", "")
    assert re.fullmatch(pattern.removesuffix("$"), found), f"no address of {pattern!r} is {found!r}"
    return found


def open_pages(listener: Listener, patterns: list[str]) -> dict[str, int]:
    """The pages that answer somebody without a secret, with their statuses."""
    assert len(patterns) > 9, "the application has noted its routes"
    base = f"http://{f'[{listener.ip}]' if ':' in listener.ip else listener.ip}:{listener.port}"
    found = {}
    stranger = Stranger(base)
    for address in sorted({f"/{address_of(pattern).lstrip('/')}" for pattern in patterns}):
        for method in ("GET", "POST"):
            status = stranger.ask(method, address)
            allowed = any(address.startswith(start) and (start != "/api" or address == start) for start in OPEN_ROUTES)
            is_silent = status == 0 and address.startswith(SILENT)
            if status < 300 and not allowed and not is_silent:
                found[f"{method} {address}"] = status
    return found


def test_nothing_is_open_to_others(tmp_path: Path, routes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    show_kinds(monkeypatch, job_kinds.VARIABLE)
    before = set(listeners(psutil.Process()))  # of earlier tests of this process, whose clusters may end late
    ports = free_port(), free_port()
    jupyter = ["syno_lab.cli", "lab", "--no-browser", "--port", str(ports[0]), "--folder", "mine", "--"]
    voila = ["voila", str(LECTURE), "--no-browser", f"--port={ports[1]}", "--Voila.auto_token=True"]
    with (
        started(tmp_path / "jupyter", *jupyter, "--allow-root") as of_jupyter,
        started(tmp_path / "voila", *voila) as of_voila,
        Lab.open(tmp_path / "lab", slots=1) as lab,
    ):
        try:
            job = lab.submit("count", {"seconds": 0.05})
            until(lambda: job.record().progress > 0, lab)
            token = of_jupyter(r"/lab\S*\?token=(\w+)")
            assert of_voila(r"token=(\w+)")
            until(lambda: all(map(is_answered, ports)))  # they listen once they have said so
            kernel = start_kernel(f"http://127.0.0.1:{ports[0]}/", token)
            with local_board():
                roots = [psutil.Process(), *map(psutil.Process, lab.cluster.processes().values())]
                found = [one for root in roots for one in listeners(root) if one not in before]
                spoken = {one: one.speaks() for one in found}
            closed = {one: open_pages(one, noted(routes, one)) for one, said in spoken.items() if said == "http"}
            cluster = [noted(routes, one) for one, said in spoken.items() if said == "tls"]
        finally:
            lab.shutdown()
    away = [one for one in found if not ipaddress.ip_address(one.ip).is_loopback]
    assert not away
    count = {said: list(spoken.values()).count(said) for said in spoken.values()}
    assert set(count) - set(OPEN_PORTS) == {"http", "tls", "zmq CURVE"}, count
    assert count["tls"] == 2, "the scheduler and the worker, and nothing beside them"
    assert all(known == ["/sitemap.json$"] for known in cluster), "Dask's HTTP, while it is there, has no page to list"
    assert count["zmq CURVE"] >= 5, "a kernel's ports"
    assert kernel.stat().st_mode & 0o077 == 0, "the server's key is in it"
    assert len(closed) >= 2, "JupyterLab and Voilà"
    assert not any(closed.values()), closed


def noted(routes: Path, listener: Listener) -> list[str]:
    """The routes of the process that listens."""
    file = routes / str(listener.process.pid)
    return sorted(set(file.read_text().splitlines())) if file.is_file() else []


def start_kernel(url: str, token: str) -> Path:
    """Start the kernel "Syno Lab" in a JupyterLab; its connection file, once it listens."""
    body = json.dumps({"name": "syno-lab"}).encode()
    request = urllib.request.Request(f"{url}api/kernels", data=body, headers={"Authorization": f"token {token}"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        number = json.load(answer)["id"]
    deadline = time.monotonic() + PATIENCE_S
    while True:
        for one in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                file = next((word for word in one.cmdline() if word.endswith(f"kernel-{number}.json")), None)
                links = one.net_connections() if file else []
                if file and sum(link.status == psutil.CONN_LISTEN for link in links) >= 5:
                    return Path(file)
        assert time.monotonic() < deadline, "the kernel does not listen"
        time.sleep(0.1)


def is_answered(port: int) -> bool:
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", port)) == 0
