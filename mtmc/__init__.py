"""MTMC: a PyTorch model in, verified and measured Triton kernels out."""
