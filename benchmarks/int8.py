"""INT8 by torch's post-training quantisation: conv2d and Operator 1 (Syno, Figure 8), latency and accuracy.

``layers``: one call of each operator on layers of ResNet-34 in float32 and in INT8, in turn, one thread, and the error
of INT8's output on normal inputs. ``accuracy``: a ResNet of 8 layers for scikit-learn's handwritten digits with the
operator in its places, trained in float32; its test accuracy then, and with those operators in INT8, calibrated on
images it was trained on. torch quantises the operator as a chain of convolutions (``int8_twins``).
"""

from __future__ import annotations

from typing import Any

from common import about, parser, save, say, typed
from tuning_cost import OPERATORS, SHAPES

from syno_lab.api import operators

OPTIONS = {"width": 8, "blocks": 1}


def layers(rounds: int) -> list[dict[str, Any]]:
    """A row for each layer and operator."""
    import torch
    from int8_twins import compare_int8

    rows = []
    for shape in SHAPES:
        channels, height = (int(one) for one in shape.split("x"))
        sizes = {"N": 1, "C_in": channels, "C_out": channels, "H": height, "W": height}
        for name, coefficients in OPERATORS.items():
            torch.manual_seed(0)
            module = operators.KNOWN[name]().to_torch({**sizes, **coefficients}).eval()
            examples = [torch.randn(1, channels, height, height) for _ in range(4)]
            found = compare_int8(module, examples, rounds=rounds, calls=3)
            row = {"float_ms": found.float_ms, "int8_ms": found.int8_ms, "error": found.error}
            say(f"{name}, {shape}: {found.float_ms:.3f} ms, INT8 {found.int8_ms:.3f} ms, error {found.error:.4f}")
            rows.append({"of": [name, shape], **row})
    return rows


def accuracy(seeds: int, epochs: int) -> list[dict[str, Any]]:
    """A row for each operator and seed."""
    import torch
    from int8_twins import with_int8

    from syno_lab.data.datasets import Dataset, load_dataset
    from syno_lab.training import train
    from syno_lab.training.tasks import ImageTask
    from syno_lab.training.train import image_answers
    from syno_lab.trial import TrialRequest
    from syno_lab.trial.backbone import build

    def right(net: torch.nn.Module, dataset: Dataset) -> float:
        answers, _ = image_answers(net, dataset)
        return sum(one == label for one, label in zip(answers, dataset.test_labels, strict=True)) / len(answers)

    dataset = load_dataset("digits")
    rows = []
    for seed in range(seeds):
        for name in OPERATORS:
            text = operators.KNOWN[name]().to_json()
            request = TrialRequest(backbone="resnet20", options=OPTIONS, data="digits", operator=text, seed=seed)
            net = build(request).module
            train(net, dataset, epochs=epochs, batch_size=32, seed=seed)
            task = ImageTask(dataset, torch.device("cpu"), 256, augment=False)
            task.start_epoch(torch.Generator().manual_seed(seed))
            images, _ = task.train_batch(0, torch.float32, torch.Generator())
            quantised = with_int8(net.eval(), images)
            row = {"of": [name, seed], "float32": right(net, dataset), "int8": right(quantised, dataset)}
            say(f"{name}, seed {seed}: accuracy {row['float32']:.3f}, INT8 {row['int8']:.3f}")
            rows.append(row)
    return rows


def main() -> None:
    """Measure and save."""
    options = parser(__doc__ or "")
    options.add_argument("--rounds", type=int, default=20, help="turns of float32 and INT8, three calls each (20)")
    options.add_argument("--seeds", type=int, default=3, help="trainings of each operator (3)")
    options.add_argument("--epochs", type=int, default=8)
    chosen = options.parse_args()
    found = {"layers": layers(chosen.rounds), "accuracy": accuracy(chosen.seeds, chosen.epochs)}
    save("int8", {"about": about(typed(), None), **found})


if __name__ == "__main__":
    main()
