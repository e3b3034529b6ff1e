"""NAS-PTE's three operators, which Figure 9 of Syno compares with: a system of their own, as they are no pGraphs."""
