"""Building operators of any system step by step: all of it made once from what a system says of its construction."""
