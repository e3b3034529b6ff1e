"""Commands for pGraphs only: their specs, sampling, enumeration, rules, and forms of their own."""
