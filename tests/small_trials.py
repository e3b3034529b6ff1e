"""A training of a fraction of a second, which tests of trials change to their purpose."""

from __future__ import annotations

from typing import Any

from syno_lab.trial import TrialRequest

SMALL = {"width": 4, "blocks": 1}


def small_trial(**changes: Any) -> TrialRequest:
    """A ResNet of 8 layers and width 4, trained on 100 digits and tested on 32."""
    values = {"backbone": "resnet20", "options": SMALL, "train_images": 100, "test_images": 32, "threads": 1}
    return TrialRequest(**(values | changes))
