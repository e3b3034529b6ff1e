"""Trust: random operators on which the loop nest, PyTorch and compiled TVM code must agree (``make trust``)."""
