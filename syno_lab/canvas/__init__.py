"""Canvas: kernels as micro-DAGs of primitives, with sizes that stay free until the network is known."""
