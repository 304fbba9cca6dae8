# reference: matmul_relu
# expect: rejected static.no_kernel
# twin: matmul_relu_fused
import operator

import torch
import torch.nn as nn
import torch.nn.functional as library

product = operator.matmul
activate = getattr(library, "re" + "lu")


class ModelNew(nn.Module):
    def forward(self, a, b):
        return activate(product(a, b))
