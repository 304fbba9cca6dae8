import textwrap
from math import inf

import pytest
import torch
from torch.utils._pytree import tree_leaves

from mtmc.capture import capture
from mtmc.errors import BadInput
from mtmc.graph import Graph, Ref, TorchConst, walk
from mtmc.meta import recurrent_shapes
from mtmc.problem import instantiate, load


def write(tmp_path, body, inputs="[torch.rand(4, 6)]", init="[]"):
    file = tmp_path / "model.py"
    text = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n" + textwrap.dedent(body)
    file.write_text(text + f"\ndef get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return {init}\n")
    return load(file)


def graph_of(tmp_path, body, **kwargs) -> Graph:
    result = capture(write(tmp_path, body, **kwargs))
    assert result.graph is not None, result.reason
    return result.graph


def model(forward, init="pass"):
    lines = textwrap.indent(textwrap.dedent(init), " " * 8)
    head = "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    return head + lines + "\n" + textwrap.indent(forward, "    ")


def test_whole_operations_with_types(tmp_path):
    body = model(
        "def forward(self, X):\n    return F.softmax(self.norm(self.fc(X)), dim=-1)",
        "self.fc = nn.Linear(6, 5)\nself.norm = nn.LayerNorm(5)",
    )
    graph = graph_of(tmp_path, body)
    assert [node.op for node in graph.nodes if node.op.startswith("aten")] == [
        "aten.linear.default",
        "aten.layer_norm.default",
        "aten.softmax.int",
    ]
    assert {node.target for node in graph.nodes if node.op == "state"} == {
        "fc.weight",
        "fc.bias",
        "norm.weight",
        "norm.bias",
    }
    linear = graph["linear"]
    assert linear.type is not None and (linear.type.shape, linear.type.dtype, linear.type.strides) == (
        (4, 5),
        "float32",
        (5, 1),
    )
    assert linear.inputs == ("x", "p_fc_weight", "p_fc_bias")
    assert graph["x"].target == "X"
    assert graph.output == Ref("softmax")


def test_in_place_operations_become_functional(tmp_path):
    body = model("def forward(self, x):\n    y = x * 2\n    y += 1\n    y.relu_()\n    return y")
    assert [node.op for node in graph_of(tmp_path, body).nodes[1:]] == [
        "aten.mul.Tensor",
        "aten.add.Tensor",
        "aten.relu.default",
    ]


def test_batch_norm_buffers_are_mutations(tmp_path):
    graph = graph_of(tmp_path, model("def forward(self, x):\n    return self.bn(x)", "self.bn = nn.BatchNorm1d(6)"))
    assert set(graph.mutations) == {"bn.running_mean", "bn.running_var", "bn.num_batches_tracked"}
    assert graph[graph.mutations["bn.num_batches_tracked"]].op == "aten.add.Tensor"


def test_nested_output_and_dtypes(tmp_path):
    body = model("def forward(self, x):\n    return {'a': x.to(torch.float64), 'b': [torch.max(x, 1), None]}")
    graph = graph_of(tmp_path, body)
    value, index = (node.name for node in graph.nodes if node.op == "getitem")
    (cast,) = (node for node in graph.nodes if node.op == "aten._to_copy.default")
    assert cast.kwargs == {"dtype": TorchConst("torch.float64")}
    assert graph.output == {"a": Ref(cast.name), "b": [(Ref(value), Ref(index)), None]}
    assert graph[value].args[1] == 0 and graph[index].type.dtype == "int64"


def test_device_and_scalars(tmp_path):
    body = model("def forward(self, x, s, n):\n    return x * s + torch.zeros(6, device=x.device) - float('inf')")
    graph = graph_of(tmp_path, body, inputs="[torch.rand(4, 6), 2.5, None]")
    zeros = next(node for node in graph.nodes if node.op == "aten.zeros.default")
    assert zeros.kwargs["device"] == TorchConst("device")
    assert graph["s"].args == (2.5,) and graph["s"].type is None
    assert inf in [arg for node in graph.nodes for arg in node.args if isinstance(arg, float)]


def test_small_inline_constant_is_literal_and_attribute_is_state(tmp_path):
    body = model(
        "def forward(self, x):\n    return x * torch.tensor(2.0) + self.shift", "self.shift = torch.tensor([1.0] * 6)"
    )
    graph = graph_of(tmp_path, body)
    assert [node.args for node in graph.nodes if node.op == "constant"] == [(2.0,)]
    assert [node.target for node in graph.nodes if node.op == "state"] == ["shift"]


def test_inline_constant_on_the_inputs_device(tmp_path):
    body = model("def forward(self, x):\n    return x * torch.tensor([1, 2, 3] * 2, device=x.device, dtype=x.dtype)")
    (constant,) = (node for node in graph_of(tmp_path, body).nodes if node.op == "constant")
    assert constant.args == ((1.0, 2.0, 3.0) * 2,) and constant.type.dtype == "float32"


@pytest.mark.parametrize("layer", ["nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True)", "nn.GRU(6, 5)", "nn.RNN(6, 5)"])
def test_recurrent_layers_stay_whole_and_shapes_agree(tmp_path, layer):
    problem = write(
        tmp_path, model("def forward(self, x):\n    return self.r(x)", f"self.r = {layer}"), "[torch.rand(2, 9, 6)]"
    )
    graph = capture(problem).graph
    real = instantiate(problem, "cpu")
    expected = tree_leaves(real.model(*real.inputs))
    got = [graph[ref.name].type for ref in walk(graph.output)]
    assert [(t.shape, t.strides) for t in got] == [(tuple(t.shape), t.stride()) for t in expected]


def test_recurrent_shapes_leave_no_trace():
    layer, x = torch.nn.LSTM(6, 5), torch.rand(3, 2, 6)
    expected = layer(x)[0]
    with recurrent_shapes():
        pass
    assert torch.equal(layer(x)[0], expected)


def test_real_size_costs_no_memory(tmp_path):
    body = model("def forward(self, x):\n    return x @ x")
    graph = graph_of(tmp_path, body, inputs="[torch.rand(2**17, 2**17)]")
    assert graph["matmul"].type.numel == 2**34


def test_constructor_that_reads_values(tmp_path):
    body = model(
        "def forward(self, x):\n    return x * self.rates[1]",
        "self.rates = [r.item() for r in torch.linspace(0, 1, 3)]",
    )
    (product,) = (node for node in graph_of(tmp_path, body).nodes if node.op == "aten.mul.Tensor")
    assert product.args[1] == 0.5


REFUSED = {
    "branch on values": ("def forward(self, x):\n    return x if x.sum() > 0 else -x", "pass", "data"),
    "hidden state": (
        "def forward(self, x):\n    self.h = torch.tanh(x + self.h)\n    return self.h",
        "self.h = torch.zeros(4, 6)",
        "h",
    ),
    "hidden state in place": (
        "def forward(self, x):\n    self.h.add_(x)\n    return self.h * 1",
        "self.h = torch.zeros(4, 6)",
        "h",
    ),
    "counter": ("def forward(self, x):\n    self.n += 1\n    return x * self.n", "self.n = 0", "attribute n"),
    "cache": ("def forward(self, x):\n    self.c.append(x)\n    return x * len(self.c)", "self.c = []", "attribute c"),
    "input changed": ("def forward(self, x):\n    x += 1\n    return x * 2", "pass", "input x"),
    "size from values": ("def forward(self, x):\n    return x[x > 0]", "pass", ""),
    "constant without values": (
        "def forward(self, x):\n    return x + x.new_tensor([1.0] * 6)",
        "pass",
        "constant",
    ),
    "large constant": (
        "def forward(self, x):\n    return x.sum() * torch.tensor([1.0] * 65, device=x.device)",
        "pass",
        "65",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_has_a_reason(tmp_path, case):
    forward, init, word = REFUSED[case]
    result = capture(write(tmp_path, model(forward, init)))
    assert result.graph is None
    assert word in result.reason and "\n" not in result.reason


def test_nested_input_is_refused(tmp_path):
    body = model("def forward(self, xs):\n    return xs[0] + xs[1]")
    assert capture(write(tmp_path, body, inputs="[[torch.rand(3), torch.rand(3)]]")).graph is None


@pytest.mark.parametrize("value", ["x.shape[0]", "(x, 'text')", "{'k': [x, 1.5]}"])
def test_output_that_is_not_a_tensor(tmp_path, value):
    with pytest.raises(BadInput, match="output.* is not a tensor but (int|str|float)"):
        capture(write(tmp_path, model(f"def forward(self, x):\n    return {value}")))


def test_output_computed_from_a_tensor_but_no_tensor(tmp_path):
    with pytest.raises(BadInput, match="return the tensor itself"):
        capture(write(tmp_path, model("def forward(self, x):\n    return x.sum().item()")))


def test_failed_export_is_silent(tmp_path, capfd):
    assert capture(write(tmp_path, model("def forward(self, x):\n    return x * 2, float(x.sum())"))).graph is None
    assert capfd.readouterr() == ("", "")


def test_user_error_in_the_constructor(tmp_path):
    with pytest.raises(BadInput, match="Building Model raised KeyError: 'missing'"):
        capture(write(tmp_path, model("def forward(self, x):\n    return x", "{}['missing']")))
