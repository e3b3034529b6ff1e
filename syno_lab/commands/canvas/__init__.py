"""Commands for Canvas alone."""
