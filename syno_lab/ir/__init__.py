"""The operator as a value: coordinates, primitives, pGraphs."""
