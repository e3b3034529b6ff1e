"""Syno's pGraphs as a system: search space, traits, known operators, panes and the stepper's construction."""
