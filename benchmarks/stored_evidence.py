"""Keep what the page shows of a validation of proxies, or of a search without rungs, in ``benchmarks/results``.

First make them, then keep them::

    syno-lab search --validate-proxy --backbone resnet20 --data CIFAR --name resnet20 --folder LAB
    python benchmarks/stored_evidence.py validation LAB resnet20
    syno-lab search --backbone gpt_tiny --data TEXT --minutes 30 --from-nothing --folder LAB
    python benchmarks/stored_evidence.py search LAB search --file search_gpt_tiny

``--note`` says what else ran on the machine. Kept are no predictions, no curves and no paths; of a validation each
operator's numbers, of a search each trial's.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path
from typing import Any

from common import about, save, typed

from syno_lab.errors import SynoError
from syno_lab.experiments.validate_proxy import RESULT_FILE, read_validation, validation_folder
from syno_lab.reports.progress import read_result

#: Fields of a search's result that are kept as they are.
KEPT = ("trials", "states", "end", "trials_per_hour", "pruned_share", "overhead_share", "search_s", "verdict", "front")
BEST = ("number", "accuracy", "flops_ratio", "params", "known", "operator")
COMPARED = (
    "measure",
    "baseline",
    "operator",
    "flops_ratio",
    "params_ratio",
    "seeds",
    "interval",
    "over_seeds",
    "verdict",
)
SETTINGS = ("method", "seed", "minutes", "workers", "seeds", "max_replaced_ratio", "starts_with_known", "wants")


def validation(lab: Path, name: str) -> dict[str, Any]:
    """A validation's agreements, ceiling and operators (without their texts)."""
    path = validation_folder(lab, name) / RESULT_FILE
    found = read_validation(path).to_dict()
    found["data"] = Path(found["data"]).name
    found["training"] = {key: found["training"][key] for key in ("epochs", "train_images", "batch_size")}
    found["operators"] = [{key: value for key, value in one.items() if key != "operator"} for one in found["operators"]]
    return {"date": path.stat().st_mtime, **found}


def search(lab: Path, name: str) -> dict[str, Any]:
    """A search's result without its trials' predictions."""
    result = read_result(lab, name)
    if result is None:
        raise SynoError(f"expected a search {name!r} that has ended in {lab}, found none")
    training = result["settings"]["training"]
    settings = {key: result["settings"].get(key) for key in SETTINGS}
    settings |= {"backbone": training["backbone"], "epochs": training["epochs"], "data": Path(training["data"]).name}
    return {
        "date": max(path.stat().st_mtime for path in (lab / "searches" / name).glob("result.json")),
        "settings": settings,
        **{key: result.get(key) for key in KEPT},
        "baseline": {key: result["baseline"][key] for key in ("accuracies", "accuracy", "flops", "params")},
        "best": {share: _some(one, BEST) for share, one in result["best"].items()},
        "comparisons": {share: _some(one, COMPARED) for share, one in result["comparisons"].items()},
        "known": result.get("known") or [],
        "recorded": [
            _some(one, ("number", "accuracy", "flops", "params", "state", "reward")) for one in result["recorded"]
        ],
    }


def _some(found: dict[str, Any] | None, names: tuple[str, ...]) -> dict[str, Any] | None:
    return None if found is None else {name: found.get(name) for name in names}


KINDS = {"validation": validation, "search": search}


def main() -> None:
    """Read and keep."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    arguments.add_argument("kind", choices=KINDS)
    arguments.add_argument("lab", type=Path, help="the folder of the lab")
    arguments.add_argument("name", help="of the validation or the search")
    arguments.add_argument("--file", help="of the result, without its ending (the kind)")
    arguments.add_argument("--commit", help="of the code that made it (that of today)")
    arguments.add_argument("--note", default="", help="what else to know of it")
    chosen = arguments.parse_args()
    try:
        found = KINDS[chosen.kind](chosen.lab, chosen.name)
    except (SynoError, OSError) as error:
        sys.exit(str(error))
    date = datetime.datetime.fromtimestamp(found.pop("date"), datetime.UTC)
    made = about(typed().replace(str(chosen.lab), "LAB"), None) | {"date": f"{date:%Y-%m-%d %H:%M} UTC"}
    if chosen.commit:
        made["commit"] = chosen.commit
    save(chosen.file or chosen.kind, {"about": made, "note": chosen.note, **found})


if __name__ == "__main__":
    main()
