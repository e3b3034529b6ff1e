"""NAS-PTE's three operators, with which Figure 9 of Syno compares; they are no pGraphs but a system of their own."""
