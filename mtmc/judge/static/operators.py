"""What PyTorch calls mean to the dataflow: which allocate, which only move or look, which compute.

Whatever is not listed computes.
"""

from __future__ import annotations

# Fresh memory without contents, or with contents that no input decides.
UNINITIALISED = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"})
CONSTANT = frozenset({
    "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "new_zeros", "new_ones", "new_full", "arange",
    "eye", "linspace", "logspace", "tensor", "as_tensor", "scalar_tensor", "from_numpy", "asarray", "tril_indices",
    "triu_indices",
})  # fmt: skip
RANDOM = frozenset(
    {"rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "randperm", "bernoulli", "normal"}
)
# The result shares memory with the operand.
VIEWS = frozenset({
    "view", "reshape", "permute", "transpose", "t", "expand", "expand_as", "view_as", "squeeze", "unsqueeze",
    "flatten", "unflatten", "narrow", "select", "chunk", "split", "unbind", "as_strided", "detach", "swapaxes",
    "movedim", "moveaxis", "diagonal", "unfold", "ravel", "reshape_as", "requires_grad_", "T", "mT", "H", "data",
    "real", "imag", "tensor_split", "contiguous", "to", "cuda", "type_as", "view_as_real", "view_as_complex", "hsplit",
    "vsplit", "swapdims", "broadcast_to", "atleast_1d", "atleast_2d", "atleast_3d", "positive", "resolve_conj",
    "resolve_neg", "alias", "wrap_triton", "values", "items", "get", "pop", "setdefault", "untyped_storage", "storage",
    "slice", "_unsafe_view", "as_subclass", "unsafe_chunk", "share_memory_", "pin_memory", "record_stream", "cpu",
    "sum_to_size", "__getitem__", "expand_copy", "contiguous_format",
})  # fmt: skip
# A copy in other memory (perhaps another type or order): the numbers are the operand's.
COPIES = frozenset({
    "clone", "float", "half", "bfloat16", "double", "int", "long", "short", "bool", "type", "copy", "deepcopy", "cat",
    "stack", "concat", "concatenate", "repeat", "tile", "repeat_interleave", "roll", "flip", "fliplr", "flipud",
    "rot90", "pad", "gather", "index_select", "take", "hstack", "vstack", "dstack", "broadcast_tensors", "meshgrid",
    "_to_copy", "to_dense", "channel_shuffle", "pixel_shuffle", "pixel_unshuffle", "numpy", "tolist", "item",
    "constant_pad_nd", "stack_copy", "byte", "char", "movedim_copy", "block_diag", "combinations", "cartesian_prod",
    "tril", "triu", "diag", "diag_embed", "column_stack",
})  # fmt: skip
# Questions about a tensor that its contents do not decide.
FACTS = frozenset({
    "shape", "size", "numel", "dim", "ndim", "stride", "dtype", "device", "is_cuda", "is_contiguous", "element_size",
    "layout", "requires_grad", "is_floating_point", "is_complex", "nelement", "itemsize", "nbytes", "storage_offset",
    "get_device", "is_cpu", "is_meta", "names", "is_sparse", "is_leaf", "grad", "grad_fn", "ndimension",
    "is_quantized", "is_pinned", "is_inference", "is_shared", "dim_order", "data_ptr", "has_names", "training",
    "is_signed", "is_nested",
})  # fmt: skip
# Calls under torch, triton and the rest that give no tensor: queries, types, contexts, classes of plain objects.
PLAIN_PREFIXES = (
    "torch.cuda.", "torch.device", "torch.Size", "torch.finfo", "torch.iinfo", "torch.dtype", "torch.no_grad",
    "torch.inference_mode", "torch.enable_grad", "torch.set_grad_enabled", "torch.is_grad_enabled",
    "torch.is_autocast_enabled", "torch.Generator", "torch.autocast", "torch.amp.", "torch.backends.",
    "torch.manual_seed", "torch.seed", "torch.initial_seed", "torch.version.", "torch.utils.", "torch._dynamo.",
    "torch.compiler.", "torch.jit.is_", "torch.is_tensor", "torch._C.", "torch.profiler.", "torch.library.",
    "torch.autograd.set", "torch.autograd.function.", "torch.nn.init.", "torch.get_default_dtype",
    "torch.promote_types", "torch.result_type", "torch.can_cast", "torch.broadcast_shapes", "torch.are_deterministic",
    "torch.get_autocast", "torch.set_", "torch.get_", "torch.is_", "torch._check", "torch._assert",
    "torch.use_deterministic", "torch.nn.Module", "torch.nn.modules.", "torch.Event", "torch.Stream",
    "torch.autograd.Function", "torch.typename", "torch.random.", "torch.memory_format", "torch.classes",
    "torch.overrides.", "torch.export.", "torch.jit.", "torch.compile", "torch.float", "torch.int", "torch.bfloat16",
    "torch.half", "torch.bool", "torch.uint8", "torch.distributed.", "triton.", "math.", "functools.", "typing.",
    "contextlib.", "collections.", "dataclasses.", "itertools.", "operator.attrgetter", "os.", "sys.", "time.",
    "warnings.", "logging.", "inspect.", "threading.", "enum.", "abc.", "types.", "random.", "struct.", "weakref.",
    "hashlib.", "json.", "re.", "pathlib.", "platform.", "gc.",
)  # fmt: skip
# Builtins whose result is a plain value decided by their arguments' plain parts.
PLAIN_BUILTINS = frozenset({
    "len", "isinstance", "issubclass", "hasattr", "callable", "type", "print", "repr", "str", "id", "hash", "range",
    "slice", "super", "object", "ValueError", "RuntimeError", "TypeError", "NotImplementedError", "AssertionError",
    "Exception", "open", "dir", "format", "vars", "globals", "locals", "eval", "exec", "__import__", "input",
    "property", "staticmethod", "classmethod",
})  # fmt: skip
# Builtins that hand on what they get.
THROUGH_BUILTINS = frozenset({
    "list", "tuple", "dict", "set", "frozenset", "zip", "enumerate", "reversed", "sorted", "iter", "next", "map",
    "filter", "int", "float", "bool", "abs", "round", "min", "max", "sum", "any", "all", "divmod", "pow", "getattr",
})  # fmt: skip
# Methods that replace all that a tensor held.
OVERWRITES = frozenset({"copy_", "zero_", "fill_", "set_", "normal_", "uniform_"})
# Methods that keep containers and modules, whose argument goes into the container.
KEEPERS = frozenset({
    "append", "add", "update", "extend", "insert", "setdefault", "register_buffer", "register_parameter",
    "register_module", "add_module", "put", "push", "__setitem__", "setattr",
})  # fmt: skip
PARAMETERS = ("torch.nn.Parameter", "torch.nn.parameter.Parameter", "torch.nn.Buffer", "torch.nn.UninitializedParameter")


def verb(name: str) -> str:
    """Last part of an operator's name, overload left out: `torch.ops.aten.mm.default` → `mm`."""
    parts = name.split(".")
    if parts[:2] == ["torch", "ops"] and len(parts) > 3:
        return parts[3]
    return parts[-1]
