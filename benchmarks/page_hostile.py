"""The parts of ``benchmarks/README.md`` on what strangers' files, users' functions and kills do to the lab."""

from __future__ import annotations

from page import Measure, Part, Result, table

#: What a reader may not do, by the verdicts of `hostile_work`.
HARMS = {
    ("traceback", "died"): "tracebacks",
    ("unclear",): "several lines, or unprintable",
    ("hang",): "hangs",
    ("memory",): "over 1 GiB",
    ("code",): "code run",
    ("changed",): "files changed",
}


def hostile(result: Result) -> str:
    """What came of malformed inputs, by the door through which they came."""
    header = ["what was opened", "tried", "refused in one line", "well-formed all the same", *HARMS.values()]
    counts = {
        name: [
            sum(verdicts.values()),
            *(verdicts.get(one, 0) for one in ("refused", "accepted")),
            *(sum(verdicts.get(one, 0) for one in harm) for harm in HARMS),
        ]
        for name, verdicts in result["surfaces"].items()
    }
    rows = [[name, *(f"{count:,}" for count in found)] for name, found in counts.items()]
    rows.append(["**all**", *(f"**{sum(found):,}**" for found in zip(*counts.values(), strict=True))])
    line = "Seed {seed}; the most that one input took is {most_cpu_s:.1f} CPU-seconds and {most_mib:.0f} MiB"
    return f"{table(header, rows)}\n\n{line.format_map(result)} beside the imports."


def kills(result: Result) -> str:
    """What was lost where work was killed again and again, and what long sessions took."""
    rows = []
    for name, title in (
        ("train", "trainings"),
        ("tune", "tunings of 12 trials"),
        ("improve", "`improve`, its jobs in the process"),
        ("writers", "two writers of one store"),
    ):
        found = result[name]
        kept = found.get("told", found.get("trials"))
        told = "the outcome of a training that was not killed" if kept is None else f"{kept:,} trials or rows"
        rows.append([title, str(found["kills"]), str(found.get("ended", "")), told, str(found.get("wrong", 0))])
    lost = table("what was killed | kills | came to the end | what was compared | lost or wrong", rows)
    moved = [
        f"{title} | {one['moves']:,} | {one['places']:,} | {one['moved_s']:.0f} | {one['kept_s']:.1f} | {one['kept']}"
        for title, one in result["sessions"].items()
    ]
    heading = "session of | moves | places | moves, CPU-s | written and read again, CPU-s | as a word"
    return f"{lost}\n\n{table(heading, moved)}"


def harms(result: Result) -> str:
    """What the command said to users' functions that hang, fork, print or end the process."""
    rows = [
        [
            f"`{row['harm']}`",
            "in its own process" if row["in_process"] else "by jobs",
            str(row["status"]),
            f"{row['seconds']:.0f}",
            f"`{row['said'][:160]}`".replace("|", "/") if row["said"] else "",
        ]
        for row in sorted(result["rows"], key=lambda row: (row["harm"], not row["in_process"]))
    ]
    return table("harm | the search | status | seconds | its last line", rows)


PARTS = (
    Part(
        "hostile",
        Measure("hostile", "python benchmarks/hostile.py", hostile),
        Measure("kills", "python benchmarks/kills.py", kills, "### Killed again and again, and long sessions"),
        Measure("harms", "python benchmarks/harms.py", harms, "### Functions of a user's that end, hang or fork"),
    ),
)
