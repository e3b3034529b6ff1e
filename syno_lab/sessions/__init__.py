"""Sessions: build operators of any system step by step, from what the system's construction describes."""
