"""The three operators of NAS-PTE in Syno's Figure 9, as a system of their own, because they are no pGraphs."""
