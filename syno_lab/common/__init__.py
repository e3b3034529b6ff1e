"""What all systems share: sizes, pairings of axes, wishes, canonical forms, ranks, terms, receptive fields."""
