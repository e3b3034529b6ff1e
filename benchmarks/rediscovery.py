"""What a search without training finds from nothing: known operators, up to sizes, and how many operators a CPU-second.

For each seed a search by elites for the layers of ResNet-20 (`syno-lab search --untrained`) runs for a number of
CPU-seconds. Every operator that it examines is compared with three families by fingerprint: separable convolutions,
grouped ones, and Operator 1's (two weights that share a window and a bottleneck), each with all windows along the two
axes, groups and bottlenecks that coefficients of the space make. A row says after how many CPU-seconds, and as which
operator examined, the first of a family came. Fingerprints are computed after the clock has stopped.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from itertools import product
from typing import Any

from common import about, parser_with_data, save, say, typed, use_one_core

from syno_lab.errors import SynoError
from syno_lab.ir.operator import Operator

#: Sizes of an inner layer of ResNet-20, but for the height: halved, so that it is not the width.
BINDING = {"N": 1, "C_in": 16, "C_out": 32, "H": 8, "W": 16}
#: Products of the space's coefficients (3, 4, 2) that fit into the image.
WINDOWS = (2, 3, 4, 6, 8)
GROUPS = (1, 2, 4, 8)
BOTTLENECKS = (2, 4, 8, 16, 32)


def main() -> None:
    """Measure and save."""
    parser = parser_with_data(__doc__ or "", 256)
    parser.add_argument("--seconds", type=float, default=300.0, help="CPU-seconds of each search")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--name", default="rediscovery", help="of the file of results")
    given = parser.parse_args()
    core = use_one_core(given.core)
    wanted = {name: dict(found) for name, found in families()}
    rows = []
    for seed in range(given.seeds):
        rows.append(searched(str(given.data), seed, given.seconds, wanted))
        say(f"seed {seed}: {rows[-1]}")
        save(given.name, {"about": about(typed(), core), "seconds": given.seconds, "seeds": rows, **summary(rows)})


def searched(data: str, seed: int, seconds: float, wanted: dict[str, dict[str, str]]) -> dict[str, Any]:
    """One search, and when it came to each family."""
    from syno_lab.experiments import SearchSettings, Space
    from syno_lab.search import EliteSearch, examine
    from syno_lab.trial import TrialRequest

    settings = SearchSettings(
        training=TrialRequest(backbone="resnet20", data=data),
        method="elites",
        seed=seed,
        minutes=seconds / 60,
        max_replaced_ratio=0.4,
        max_traffic_ratio=4.0,
        weight_limits="primary",
        wants="derived",
        limits={"max_primitives": 10},
        seeds=(),
        untrained=True,
    )
    space = Space(settings)
    begun = time.process_time()
    search = space.search(settings)
    assert isinstance(search, EliteSearch)
    ends = lambda: time.process_time() - begun >= seconds  # noqa: E731
    found = [(time.process_time() - begun, one.operator) for one in examine(search, space.score, ends)]
    first: dict[str, dict[str, Any] | None] = dict.fromkeys(wanted)
    for number, (at, operator) in enumerate(found, 1):
        fingerprint = fingerprint_of(operator)
        for name, known in wanted.items():
            if first[name] is None and fingerprint in known:
                first[name] = {"cpu_s": at, "examined": number, "as": known[fingerprint]}
    front = search.elites.front()
    return {
        "seed": seed,
        "examined": len(found),
        "examined_per_cpu_s": len(found) / seconds,
        "first_s": found[0][0] if found else None,
        "families": first,
        "front": [
            {"replaced_ratio": 0.4 * one.cost, "score": one.score, "weights": str(one.operator)} for one in front
        ],
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """In how many seeds each family was found, and the median rate."""
    return {
        "found": {name: sum(row["families"][name] is not None for row in rows) for name in rows[0]["families"]},
        "examined_per_cpu_s": statistics.median(row["examined_per_cpu_s"] for row in rows),
    }


def fingerprint_of(operator: Operator) -> str | None:
    """The fingerprint under :data:`BINDING`; None where the operator has none there."""
    try:
        return operator.fingerprint({name: BINDING[name] for name in operator.variables if name in BINDING})
    except SynoError:
        return None


def families() -> Iterator[tuple[str, Iterator[tuple[str, str]]]]:
    """The names of the families, and each family's fingerprints with what they stand for."""
    yield "separable", (pair for p, q in product(WINDOWS, WINDOWS) for pair in separable(p, q))
    yield "grouped", (pair for g, p, q in product(GROUPS[1:], WINDOWS, WINDOWS) for pair in grouped(g, p, q))
    yield (
        "operator 1",
        (
            pair
            for g, m, p, q, is_turned in product(GROUPS, BOTTLENECKS, WINDOWS, WINDOWS, (False, True))
            for pair in operator_1(g, m, p, q, is_turned)
        ),
    )


def separable(p: int, q: int) -> Iterator[tuple[str, str]]:
    """:func:`syno_lab.operators.separable` with a window of two sizes."""
    build, (n, o, h, w) = _begun(p=p, q=q)
    c, i, j = build.reduce("C_in"), build.reduce("p"), build.reduce("q")
    build.contract(share=[c], give=[o])
    build.contract(share=[c, i, j])
    yield from _ended(build, (n, c, build.unfold(h, i), build.unfold(w, j)), f"separable {p}x{q}")


def grouped(g: int, p: int, q: int) -> Iterator[tuple[str, str]]:
    """:func:`syno_lab.operators.grouped` with a window of two sizes."""
    build, (n, c_out, h, w) = _begun(g=g, p=p, q=q)
    c, i, j = build.reduce("g^-1*C_in"), build.reduce("p"), build.reduce("q")
    a, o = build.merge(c_out, "g^-1*C_out")
    build.contract(share=[a, c, i, j], give=[o])
    ends = (n, build.split(a, c), build.unfold(h, i), build.unfold(w, j))
    yield from _ended(build, ends, f"{g} groups, {p}x{q}")


def operator_1(g: int, m: int, p: int, q: int, is_turned: bool) -> Iterator[tuple[str, str]]:
    """:func:`syno_lab.operators.operator_1` with a window of two sizes and any bottleneck; turned: H for W.

    Without groups (1) the second weight reduces the channels whole.
    """
    build, (n, o, h, w) = _begun(**({"g": g} if g > 1 else {}), m=m, p=p, q=q)
    groups, middle = [build.reduce("g")] if g > 1 else [], [build.reduce("m")]
    i, j, c = build.reduce("p"), build.reduce("q"), build.reduce("g^-1*C_in" if g > 1 else "C_in")
    build.contract(share=[*groups, i, j, *middle], give=[o])
    channel = build.split(groups[0], c) if groups else c
    build.contract(share=[channel, j], give=middle)
    ends = (
        n,
        channel,
        *((build.unfold(h, j), build.unfold(w, i)) if is_turned else (build.unfold(h, i), build.unfold(w, j))),
    )
    yield from _ended(
        build,
        ends,
        f"{g} groups, bottleneck {m}, {q}x{p} turned" if is_turned else f"{g} groups, bottleneck {m}, {p}x{q}",
    )


def _begun(**coefficients: int) -> tuple[Any, Any]:
    from syno_lab.operators.known import IMAGE, INPUT, OUTPUT, Build

    build = Build(
        INPUT, OUTPUT, IMAGE, [f"{name}={size}" for name, size in coefficients.items()], fixed_io_pairs=[(0, 0)]
    )
    return build, build.output


def _ended(build: Any, ends: tuple[Any, ...], text: str) -> Iterator[tuple[str, str]]:
    fingerprint = fingerprint_of(build.finish(*ends))
    if fingerprint is not None:
        yield fingerprint, text


if __name__ == "__main__":
    main()
