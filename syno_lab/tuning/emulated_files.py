"""The files of an emulated aarch64 board: Debian's Python and linker, the wheels of TVM, an emulator; no root needed.

apt-get fetches Debian's packages, and checks their digests against the signed index of this machine's sources. The
state of apt-get is in the cache folder. pip fetches the wheels and checks their digests. A digest of the unpacked files
is stored, and checked whenever a board starts.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import msgspec

from syno_lab.errors import TuningError
from syno_lab.processes.alone import alone
from syno_lab.processes.process import module_command

#: The environment variable that names the folder of emulated boards; the default is in the user's cache folder.
FOLDER_VARIABLE = "SYNO_LAB_BOARDS"
#: The advice for a user without an emulated board.
ADVICE = "run `syno-lab board --emulate --fetch`"

#: The board has this machine's versions, because TVM's RPC needs the same version on both sides.
_WHEELS = (
    "apache-tvm",
    "apache-tvm-ffi",
    "cloudpickle",
    "ml_dtypes",
    "numpy",
    "psutil",
    "tornado",
    "typing_extensions",
)
_PACKAGES = ("python3-minimal", "libpython3-stdlib", "libstdc++6", "libgcc-s1", "libc6", "binutils-aarch64-linux-gnu")
_EMULATORS = ("qemu-aarch64-static", "qemu-aarch64")
#: A wheel names the oldest glibc with which it runs; Debian 12 has 2.36.
_PLATFORMS = (*(f"manylinux_2_{minor}_aarch64" for minor in range(36, 16, -1)), "manylinux2014_aarch64")
_VERSION = 1
_STEP_DEADLINE_S = 600.0

Report = Callable[[str], None]


class _Download(msgspec.Struct, frozen=True):
    """A downloaded file: its name, its size in bytes and its SHA-256."""

    name: str
    size: int
    sha256: str


class _Record(msgspec.Struct, frozen=True):
    """The record of a board: versions of wheels, downloads, digest of all files."""

    version: int
    packages: dict[str, str]
    downloads: tuple[_Download, ...]
    digest: str


@dataclass(frozen=True)
class BoardFiles:
    """An unpacked board: ``root`` is its file system; ``emulator`` runs its programs."""

    folder: Path
    emulator: str

    @property
    def root(self) -> Path:
        """The root folder of the board's file system."""
        return self.folder / "root"

    @property
    def wheels(self) -> Path:
        """The folder of the unpacked wheels."""
        return self.root / "wheels"

    @property
    def python(self) -> Path:
        """The board's Python."""
        return _python(self.root)


def boards_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the cache folder: ``folder``, else the value of ``SYNO_LAB_BOARDS``, else a folder in the user's cache."""
    chosen = folder or os.environ.get(FOLDER_VARIABLE)
    if not chosen:
        import pooch

        chosen = Path(pooch.os_cache("syno-lab")) / "boards"
    return Path(chosen).expanduser().resolve()


def find_board(folder: str | os.PathLike[str] | None = None) -> BoardFiles:
    """Find a fetched board, and check that it is complete and has the installed versions.

    Raises TuningError for a missing board, a changed board or other versions; the message has advice.
    """
    path = _target(boards_folder(folder))
    try:
        record = msgspec.json.decode(_record(path).read_bytes(), type=_Record)
        is_intact = record.version == _VERSION and _digest(path) == record.digest
    except FileNotFoundError:
        raise TuningError(
            f"expected an emulated board for TVM {_versions()['apache-tvm']} in {path.parent}, found none; {ADVICE}"
        ) from None
    except msgspec.ValidationError as error:
        raise TuningError(f"the emulated board in {path} is incomplete ({error}); remove it and {ADVICE}") from None
    except (OSError, msgspec.DecodeError) as error:
        raise TuningError(f"the emulated board in {path} cannot be read ({error}); remove it and {ADVICE}") from None
    board = BoardFiles(path, _emulator(path))
    if not is_intact:
        raise TuningError(f"the emulated board in {path} has changed since it was unpacked; remove it and {ADVICE}")
    if record.packages != _versions():
        raise TuningError(f"the emulated board in {path} has other versions than this machine; remove it and {ADVICE}")
    return board


def fetch_board(folder: str | os.PathLike[str] | None = None, report: Report = lambda line: None) -> BoardFiles:
    """Return the board in the cache; fetch and unpack a missing board: about 220 MB, half a gigabyte on disk.

    ``report`` is called with a line for each step. After an interrupted call, the next call uses the files that were
    downloaded. Raises TuningError with the reason if apt-get or dpkg-deb is missing, or if a package cannot be fetched.
    """
    base = boards_folder(folder)
    with contextlib.suppress(TuningError):
        return find_board(base)
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise TuningError(f"expected {program} (Debian and its relatives) to fetch an emulated board, found none")
    target, downloads, part = _target(base), base / "downloads", _target(base).with_suffix(".part")
    try:
        base.mkdir(parents=True, exist_ok=True)
        with alone(base / "lock", "", math.inf):
            with contextlib.suppress(TuningError):
                return find_board(base)  # another process has fetched the board meanwhile
            for path in (part, target):
                shutil.rmtree(path, ignore_errors=True)
            return _fetch(target, part, downloads, report)
    except OSError as error:
        raise TuningError(f"cannot fetch an emulated board into {base}: {error}") from None


def _fetch(target: Path, part: Path, downloads: Path, report: Report) -> BoardFiles:
    apt = _Apt(downloads / "apt")
    report("reading Debian's package lists for arm64")
    apt.update()
    report("fetching Python and a linker for arm64")
    packages = apt.download("arm64", _PACKAGES)
    emulators = []
    if not any(map(shutil.which, _EMULATORS)):
        report("fetching the emulator")
        emulators = apt.download_alone("qemu-user-static")
    root = part / "root"
    root.mkdir(parents=True)
    for package in packages:
        _run(["dpkg-deb", "--extract", str(package), str(root)], f"unpack {package.name}")
    # Newer Debians create the links below when a package is installed, not when it is unpacked.
    for name in ("bin", "lib", "sbin"):
        if not (root / name).exists() and (root / "usr" / name).is_dir():
            (root / name).symlink_to(f"usr/{name}")
    for package in emulators:
        _run(["dpkg-deb", "--extract", str(package), str(part / "emulator")], f"unpack {package.name}")
        shutil.move(part / "emulator" / "usr" / "bin" / _EMULATORS[0], part / _EMULATORS[0])
        shutil.rmtree(part / "emulator")
    report("fetching wheels for aarch64")
    wheels = _download_wheels(_python(root).name.removeprefix("python"), downloads / "wheels")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(root / "wheels")
    files = tuple(_Download(file.name, file.stat().st_size, _sha256(file)) for file in (*packages, *emulators, *wheels))
    record = _Record(_VERSION, _versions(), files, _digest(part))
    _record(part).write_text(json.dumps(msgspec.to_builtins(record), indent=1) + "\n", encoding="utf-8")
    part.rename(target)
    shutil.rmtree(downloads)
    return find_board(target.parent)


class _Apt:
    """Calls apt-get with its own lists, cache and status. The calls install nothing and need no root."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._archives = folder / "cache" / "archives"
        (folder / "state" / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        (self._archives / "partial").mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        self._options = [
            option
            for value in (
                f"Dir::State={folder / 'state'}",
                f"Dir::State::status={folder / 'status'}",
                f"Dir::Cache={folder / 'cache'}",
                "APT::Architectures::=arm64",
                f"APT::Sandbox::User={'root' if os.geteuid() == 0 else ''}",
                "Acquire::Retries=2",
                "Acquire::http::Timeout=20",
                "Acquire::https::Timeout=20",
            )
            for option in ("-o", value)
        ]

    def update(self) -> None:
        # A source that does not answer causes only a warning; a missing package raises an error later.
        _run(["apt-get", *self._options, "-qq", "update"], "read Debian's package lists", check=False)

    def download(self, architecture: str, names: Sequence[str]) -> list[Path]:
        """Download the packages and all their dependencies."""
        command = ["apt-get", *self._options, "-o", f"APT::Architecture={architecture}", "-qq", "-y"]
        command += ["--no-install-recommends", "install", *names]
        # apt-get lists only packages that are not in its cache, so this call uses an empty cache.
        empty = self._folder / "empty"
        (empty / "partial").mkdir(parents=True, exist_ok=True)
        printed = _run(
            [*command, "--print-uris", "-o", f"Dir::Cache::archives={empty}"],
            f"find {', '.join(names)} for {architecture}",
        )
        _run([*command, "--download-only"], f"download {', '.join(names)} for {architecture}")
        archives = [self._archives / line.split()[1] for line in printed.splitlines() if line.startswith("'")]
        missing = [archive.name for archive in archives if not archive.is_file()]
        if missing or not archives:
            raise TuningError(f"apt-get did not download {', '.join(missing) or 'anything'}")
        return archives

    def download_alone(self, name: str) -> list[Path]:
        """Download the package without its dependencies, for this machine."""
        _run(["apt-get", *self._options, "-qq", "download", name], f"download {name}", folder=self._archives)
        return sorted(self._archives.glob(f"{name}_*.deb"))[-1:]


def _download_wheels(python: str, folder: Path) -> list[Path]:
    if importlib.util.find_spec("pip") is None:
        raise TuningError("expected pip in this environment to fetch wheels for aarch64, found none; install pip")
    folder.mkdir(parents=True, exist_ok=True)
    platforms = [option for platform in _PLATFORMS for option in ("--platform", platform)]
    pinned = [f"{name}=={version}" for name, version in _versions().items()]
    command = module_command("pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps")
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", python, *platforms]
    _run([*command, "--dest", str(folder), *pinned], f"download wheels for aarch64 and Python {python}")
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != len(pinned):
        raise TuningError(f"expected {len(pinned)} wheels in {folder}, found {len(wheels)}; remove it and {ADVICE}")
    return wheels


def _run(command: list[str], action: str, *, check: bool = True, folder: Path | None = None) -> str:
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
            timeout=_STEP_DEADLINE_S, check=False, env=environment, cwd=folder,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TuningError(f"cannot {action}: not done after {_STEP_DEADLINE_S:g} s") from None
    if check and process.returncode != 0:
        lines = [line.strip() for line in (process.stdout + process.stderr).splitlines() if line.strip()]
        reasons = [line for line in lines if re.match(r"(E:|ERROR)", line)] or lines or [f"status {process.returncode}"]
        raise TuningError(f"cannot {action}: {reasons[-1][:300]}")
    return process.stdout


def _target(base: Path) -> Path:
    return base / f"aarch64-tvm-{_versions()['apache-tvm']}"


def _record(folder: Path) -> Path:
    return folder / "board.json"


def _versions() -> dict[str, str]:
    try:
        return {name: metadata.version(name) for name in _WHEELS}
    except metadata.PackageNotFoundError as error:
        raise TuningError(f"expected {error.name} in this environment, found none; install Syno Lab afresh") from None


def _python(root: Path) -> Path:
    paths = [path for path in (root / "usr" / "bin").glob("python3.*") if re.fullmatch(r"python3\.\d+", path.name)]
    if len(paths) != 1:
        raise TuningError(f"expected one Python in {root}, found {len(paths)}; remove it and {ADVICE}")
    return paths[0]


def _emulator(base: Path) -> str:
    """Return the board's emulator if the board has one, else this machine's emulator."""
    own = base / _EMULATORS[0]
    program = str(own) if own.is_file() else next(filter(None, map(shutil.which, _EMULATORS)), None)
    if program is None:
        raise TuningError(f"expected {' or '.join(_EMULATORS)} on the PATH, found neither; remove {base} and {ADVICE}")
    return program


def _digest(root: Path) -> str:
    """Return a digest of all files' names and bytes, except Python's compiled files and the record."""
    digest = hashlib.sha256()
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(sub for sub in folders if sub != "__pycache__")
        for name in sorted(names):
            path = Path(folder) / name
            relative = path.relative_to(root).as_posix()
            if path == _record(root):
                continue
            content = str(path.readlink()) if path.is_symlink() else _sha256(path)
            digest.update(f"{relative}\0{content}\n".encode())
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
