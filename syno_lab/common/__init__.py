"""What all systems have in common: sizes, pairings of axes, wishes, canonical keys, ranks, terms, what is read."""
