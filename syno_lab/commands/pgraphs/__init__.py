"""Commands for pGraphs alone: their specs, sampling, enumeration, rules, and the forms that they alone have."""
