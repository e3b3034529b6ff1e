"""Code generation: from an operator to its loop nest, NumPy, PyTorch, TVM, exported files and pictures."""
