"""A whole network by TVM's Relax: a backbone with an operator in every place against the same with convolutions.

Both are tuned alike, each different function with the same trials over RPC on loopback, and then measured in turn
(Syno, Figure 5); PyTorch's own call of the backbone is timed beside them, in as many threads. ``syno-lab network`` is
the same for a user.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from common import about, parser, save, say, typed

from syno_lab.api import operators

if TYPE_CHECKING:
    from torch import nn


def eager_ms(net: nn.Module, image: tuple[int, int, int], threads: int, calls: int = 50) -> dict[str, float]:
    """Milliseconds of PyTorch's call: the median and the least."""
    import torch

    torch.set_num_threads(threads)
    x, found = torch.randn(1, *image), []
    with torch.inference_mode():
        for number in range(calls + 5):
            started = time.perf_counter()
            net(x)
            if number >= 5:
                found.append(1e3 * (time.perf_counter() - started))
    return {"latency_ms": statistics.median(found), "best_ms": min(found)}


def main() -> None:
    """Tune, measure and save."""
    options = parser(__doc__ or "")
    options.add_argument("--operator", default="operator_1", choices=list(operators.KNOWN))
    options.add_argument("--backbone", default="resnet20")
    options.add_argument("--trials", type=int, default=8, help="candidates of each function (8)")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--rounds", type=int, default=5, help="measurements of one network and then the other (5)")
    chosen = options.parse_args()
    from syno_lab.models.registry import backbone
    from syno_lab.tuning import local_board
    from syno_lab.tuning.versus import compare_networks

    found = backbone(chosen.backbone)
    net = found.build().eval()
    image = (3, found.size, found.size)
    started = time.monotonic()
    with local_board(threads=chosen.threads) as board, tempfile.TemporaryDirectory() as folder:
        compared = compare_networks(
            operators.KNOWN[chosen.operator](),
            net,
            image,
            board=board,
            folder=folder,
            selection=found.selection,
            trials=chosen.trials,
            seed=chosen.seed,
            threads=chosen.threads,
            rounds=chosen.rounds,
            on_progress=lambda what, share, words: say(f"{what}, {share:.0%}: {words}"),
        )
    told: dict[str, Any] = {"about": about(typed(), None), "seconds": time.monotonic() - started}
    told |= {"settings": {name: getattr(chosen, name) for name in ("operator", "backbone", "trials", "threads")}}
    told["eager"] = eager_ms(net, image, chosen.threads)
    for name in ("convolutions", "operator"):
        whole = getattr(compared, name)
        told[name] = asdict(whole) | {"latency_ms": whole.latency_ms, "best_ms": whole.best_ms}
        told[name]["failed"] = {key: reason.replace(folder, "") for key, reason in whole.failed.items()}
    told["places"] = [len([one for one in compared.places if one.replaced]), len(compared.places)]
    save("network", told | {"speedup": compared.speedup})


if __name__ == "__main__":
    main()
