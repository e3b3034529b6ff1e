"""What an operator is turned into: loop nest, PyTorch, TVM, pictures."""
