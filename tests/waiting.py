"""Waiting for what other processes do."""

import time


def wait_until(condition, seconds=120):
    """Wait so long for a condition; whether it came."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
