"""What makes a well-formed file, text or word hostile: damaged bytes, JSON with other values in it, odd kinds of files.

Every function takes the random generator, so that a seed and a number give the same input again.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import socket
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Apparent bytes of a sparse file, more than any process may take.
SPARSE = 3 << 30


@dataclass(frozen=True)
class Raw:
    """JSON text that stands in a document as it is, well-formed or not."""

    text: str


class Payload:
    """An object whose unpickling makes a file: the sign that a reader runs what it reads."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.marker),)


def payload_texts(marker: Path) -> list[str]:
    """Texts that make the marker where they reach a shell, an evaluation, a format or an import."""
    run = f"__import__('os').mkdir({str(marker)!r})"
    return [
        f"$(mkdir {marker})",
        f"`mkdir {marker}`",
        f"; mkdir {marker} #",
        f"| mkdir {marker}",
        f"' ; mkdir {marker} ; '",
        f"\nmkdir {marker}\n",
        f"!mkdir {marker}",
        run,
        f"{{{run}}}",
        f"{{0.__class__.__init__.__globals__}}{{{run}}}",
        f"%({run})s",
        f"hostile_module:{marker}",
        "os:system",
        "../hostile_module.py:run",
    ]


def payload_pickles(marker: Path) -> list[bytes]:
    """Pickles that make the marker, in every protocol, by themselves and inside of what a reader expects."""
    inside = [Payload(marker), {"data": Payload(marker)}, {b"data": [Payload(marker)], b"labels": [1]}]
    return [pickle.dumps(one, protocol) for one in inside for protocol in (0, 2, 4, 5)]


def odd_texts(marker: Path) -> list[str]:
    """Texts that no name, path or number should be."""
    return [
        "",
        " ",
        "\0",
        "\x1b[2J\x1b]0;title\x07",
        "\u202egnp.exe",
        "a\nb\r\nc",
        "x" * 100_000,
        "9" * 5000,
        "1" * 19,
        "0x10",
        "1e9",
        "-1",
        "٣",
        "²",
        "NaN",
        "inf",
        "../../../../etc/passwd",
        "/dev/zero",
        "/dev/stdin",
        "~root",
        "file:///etc/passwd",
        "tcp://127.0.0.1:1",
        "__class__",
        "%s%n%d",
        "--help",
        "-",
        "[" * 5000,
        "(" * 500,
        "H^" + "9" * 400,
        "H^-99999999",
        "*".join(["H"] * 2000),
        ", ".join(f"H_{i}" for i in range(300)),
        "\ud800",
        "\udcff",
        "é" * 300,
        "\N{PILE OF POO}" * 50,
        *payload_texts(marker),
    ]


def odd_values(marker: Path) -> list[Any]:
    """Values that may stand in a JSON document where something else is expected."""
    numbers = (-1, 0, 1, 2, 7, 64, 255, 1 << 31, 1 << 53, 1 << 63, 10**18, 10**19, -(1 << 63), 0.5, -0.0, 1e308, 1e-320)
    literals = (
        *("NaN", "Infinity", "-Infinity", "1e400", "-1e999", "9" * 5000, "0" + "1" * 20, "1" + "0" * 400),
        *('"\\ud800"', '"\\udc00\\ud800"', "[" * 2000 + "]" * 2000, "[" * 90_000, '{"a":' * 2000 + "1" + "}" * 2000),
        *("", "nul", "'x'", "// x", "[1,]", '"unfinished', "[" + "0," * 20_000 + "0]"),
    )
    plain = (None, True, False, [], {}, [[]], [None], {"": ""}, {"a": {"b": []}}, list(range(1000)), ["H"] * 300)
    return [*numbers, *plain, *map(Raw, literals), *odd_texts(marker)]


def dumped(value: Any) -> str:
    """JSON text of a value in which `Raw` parts stand as they are."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))}: {dumped(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(dumped, value)) + "]"
    return json.dumps(value)


def damaged_json(rng: random.Random, value: Any, marker: Path) -> str:
    """The text of a JSON document with one to four parts that are not what they were."""
    found = json.loads(json.dumps(value))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(_places(found))
        if not places:
            return dumped(rng.choice(odd_values(marker)))
        holder, key = rng.choice(places)
        way = rng.randrange(8)
        if way == 0:
            del holder[key]
        elif way == 1 and isinstance(holder, dict):
            holder[rng.choice(odd_texts(marker))] = holder.pop(key)
        elif way == 2 and isinstance(holder, dict):  # a key twice
            holder[key] = Raw(f"{dumped(holder[key])}, {json.dumps(key)}: {dumped(rng.choice(odd_values(marker)))}")
        elif way == 3 and isinstance(holder, list):
            holder.insert(rng.randrange(len(holder) + 1), rng.choice(holder))
        elif way == 4 and isinstance(holder[key], str):
            holder[key] = damaged_text(rng, holder[key], marker)
        elif way == 5 and isinstance(holder[key], int):
            holder[key] += rng.choice((-2, -1, 1, 2, 1 << 32))
        else:
            holder[key] = rng.choice(odd_values(marker))
    text = dumped(found)
    return damaged_text(rng, text, marker) if rng.random() < 0.15 else text


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        yield value, key
        yield from _places(one)


def damaged_text(rng: random.Random, text: str, marker: Path) -> str:
    """A text with characters taken away, put in, repeated or exchanged."""
    at, end = sorted(rng.randrange(len(text) + 1) for _ in range(2))
    way = rng.randrange(7)
    if way == 0:
        return text[:at]
    if way == 1:
        return text[:at] + text[min(end, at + 5) :]
    if way == 2:
        return text[:at] + rng.choice(odd_texts(marker)) + text[at:]
    if way == 3:
        return text[:at] + text[at:end] * rng.choice((2, 3, 50)) + text[end:]
    if way == 4:
        return (
            text[:at] + rng.choice("[]{}()<>^*/=:,;-+.'\"\\ \t\n\0\x1b\x7f\u202e\u00a0é0123456789eE_") + text[at + 1 :]
        )
    if way == 5:
        digits = [place for place, sign in enumerate(text) if sign.isdigit()]
        place = rng.choice(digits) if digits else at
        return text[:place] + rng.choice(("0", "-1", "9" * 19, "9" * 5000, "1.5", "²", "٣")) + text[place + 1 :]
    return text[:at] + "".join(rng.choice(text or "x") for _ in range(min(end - at, 200))) + text[end:]


def damaged_bytes(rng: random.Random, raw: bytes) -> bytes:
    """Bytes with bits turned, ranges cut out, put in or replaced, and large numbers where lengths may stand."""
    data = bytearray(raw)
    if not data:
        return rng.randbytes(rng.randrange(1, 200))
    at = rng.randrange(len(data))
    # Headers and the ends of archives hold what a reader believes first.
    if rng.random() < 0.4:
        at = (
            rng.randrange(min(len(data), 256))
            if rng.random() < 0.5
            else len(data) - 1 - rng.randrange(min(len(data), 256))
        )
    length = rng.choice((1, 2, 4, 8, 16, 100, 4096))
    way = rng.randrange(10)
    if way <= 2:
        for _ in range(rng.choice((1, 1, 1, 8, 100))):
            data[at] ^= 1 << rng.randrange(8)
            at = rng.randrange(len(data))
    elif way == 3:
        del data[at:]
    elif way == 4:
        del data[at : at + length]
    elif way == 5:
        data[at:at] = rng.randbytes(length)
    elif way == 6:
        data[at : at + length] = bytes([rng.choice((0, 255))]) * length
    elif way == 7:
        number = rng.choice(
            (0, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1, 1 << 40, len(data) + 1)
        )
        wide = rng.choice((4, 8))
        data[at : at + wide] = (number % (1 << 8 * wide)).to_bytes(wide, rng.choice(("little", "big")))
    elif way == 8:
        data += data[at : at + length] or b"\0"
    else:
        return rng.choice((b"", b"\0", raw[:1], rng.randbytes(len(raw) % 5000), b"\xef\xbb\xbf" + raw, raw + raw))
    return bytes(data)


def damaged_archive(rng: random.Random, raw: bytes, marker: Path) -> bytes:
    """A zip archive one of whose entries is another: damaged, a pickle, missing, twice, or named for another folder."""
    entries = []
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        entries = [(one.filename, archive.read(one)) for one in archive.infolist()]
    place = rng.randrange(len(entries))
    name, content = entries[place]
    way = rng.randrange(7)
    if way == 0:
        del entries[place]
    elif way == 1:
        pickles = [at for at, (one, _) in enumerate(entries) if one.endswith((".pkl", ".pt"))] or [place]
        at = rng.choice(pickles)
        entries[at] = entries[at][0], rng.choice(payload_pickles(marker))
    elif way == 2:
        entries.append((name, rng.choice(payload_pickles(marker))))
    elif way == 3:
        entries[place] = f"../../{name}", content
    elif way == 4:
        entries[place] = name, b"\0" * (64 << 20)  # packs to very little
    elif way == 5:
        entries[place] = name, rng.choice(odd_texts(marker)).encode("utf-8", "surrogatepass")
    else:
        entries[place] = name, damaged_bytes(rng, content)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if way == 4 else zipfile.ZIP_STORED) as archive:
        for one, data in entries:
            archive.writestr(zipfile.ZipInfo(one), data)
    return out.getvalue()


def odd_place(rng: random.Random, path: Path) -> Path:
    """Put something that is no plain file at ``path``: a FIFO, a device, a folder, a socket, a link, a sparse file."""
    way = rng.randrange(9)
    path.unlink(missing_ok=True)
    if way == 0:
        os.mkfifo(path)
    elif way == 1:
        path.mkdir()
    elif way == 2:
        path.symlink_to(path.name)
    elif way == 3:
        path.symlink_to("/nowhere/at/all")
    elif way == 4:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path.parent / ".socket"))  # no more than 108 bytes; a name may have more
        (path.parent / ".socket").rename(path)
    elif way == 5:
        with path.open("wb") as file:
            file.truncate(SPARSE)
    elif way == 6:
        (path.parent / "inside").mkdir()
        os.mkfifo(path.parent / "inside" / path.name)
        path.symlink_to(f"inside/{path.name}")
    else:
        path.symlink_to(
            rng.choice(("/dev/zero", "/dev/random", "/dev/full", "/dev/null", "/proc/self/mem", "/proc/self/environ"))
        )
    return path


def odd_name(rng: random.Random, plain: str) -> str:
    """Now and then a file's name that no terminal or shell should be given, with the suffix of ``plain``."""
    if rng.random() < 0.9:
        return plain
    odd = (
        "\x1b[2J",
        "a b",
        "-rf",
        "'; ls; '",
        "\u202egpj",
        "line\nbreak",
        "x" * 200,
        "\udcff",
        "{0}",
        "%s",
        "$HOME",
        "*",
    )
    return rng.choice(odd) + (Path(plain).suffix or plain)
