"""Commands for Canvas only."""
