"""Data, training, tuning, results and figures."""
