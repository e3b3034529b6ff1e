"""The operator as a value: sizes, coordinates, primitives, pGraphs."""
