"""ONNX models of one step, run by ONNX Runtime, against the interpreter."""

import itertools
import sys

import numpy as np
import pytest
import torch

from mgrade import Model, ModelConfig
from mgrade.deploy import Interpreter, Op, Program, calibrate, from_model, optimise, quantise
from mgrade.deploy.interpreter import MOST_STEPS
from mgrade.deploy.onnx import to_onnx

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

TOLERANCE = 1e-5
PRESETS = ("mgrade", "mingru", "dcls", "tcn", "lru", "lru_dcls")
TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64}


def make(preset, **fields):
    """A small model, with biases and scales that are not those it starts with."""
    sizes = {"inputs": 5, "outputs": 3, "dim": 8, "depth": 2, "taps": 3, "max_delay": 11}
    model = Model(getattr(ModelConfig, preset)(**{**sizes, **fields}))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def sequence(program, steps=200):
    random = np.random.default_rng(0)
    if program.tokens:
        return random.integers(0, program.inputs, steps)
    return random.standard_normal((steps, program.inputs)).astype(np.float32)


class Session:
    """A model in ONNX Runtime; `state` by name, zero at first."""

    def __init__(self, model):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.x, *states = self.session.get_inputs()
        self.state = {state.name: np.zeros(state.shape, TYPES[state.type]) for state in states}
        self.names = [output.name for output in self.session.get_outputs()]

    def step(self, x):
        outputs = self.session.run(None, {self.x.name: x[None], **self.state})
        named = dict(zip(self.names, outputs, strict=True))
        y = named.pop("y")
        assert {name.removeprefix("next_") for name in named} == self.state.keys()
        self.state = {name: named[f"next_{name}"] for name in self.state}
        return y[0]

    def run(self, x):
        return np.stack([self.step(x[t]) for t in range(len(x))])


def assert_equal(y, expected):
    assert y.shape == expected.shape
    assert np.abs(y - expected).max() <= TOLERANCE * np.abs(expected).max()


def assert_runs(program, steps=200):
    """The model is valid, and gives what the interpreter gives."""
    model = to_onnx(program)
    onnx.checker.check_model(model, full_check=True)
    x = sequence(program, steps)
    assert_equal(Session(model.SerializeToString()).run(x), Interpreter(program).run(x[None])[0])


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("tokens", [False, True], ids=["channels", "tokens"])
@pytest.mark.parametrize("readout", ["every", "last", "mean", "sum"])
def test_every_preset(preset, tokens, readout):
    model = make(preset, tokens=tokens, readout=readout)
    snaps = (False, True) if model.config.conv == "delay" else (False,)
    for snap, smaller in itertools.product(snaps, (False, True)):
        program = from_model(model, snap=snap)
        assert_runs(optimise(program) if smaller else program)


@pytest.mark.parametrize(
    "fields",
    [
        {"projection": True, "expansion": 1.5},
        {"norm": "pre", "branch_norms": ("conv", "recurrence", "mlp")},
        {"mlp": "glu", "skips": ()},
        {"dim": 1, "inputs": 1, "outputs": 1},
        {"max_delay": 1, "taps": 1},
        {"max_delay": 300, "taps": 2},
    ],
    ids=str,
)
def test_other_models(fields):
    for snap in (False, True):
        program = from_model(make("mgrade", **fields), snap=snap)
        assert_runs(program, 400)
        assert_runs(optimise(program), 400)


def test_every_kind_and_shape_of_delay():
    """Lags out of order, doubled, far apart, and without the newest."""
    random = np.random.default_rng(1)
    shared = ([0], [3, 1, 0, 2], [7, 7, 2], [400, 0], [2], [1, 2, 3])
    for lags in shared:
        lag, weight = np.array(lags, np.uint16), random.standard_normal((len(lags), 4)).astype(np.float32)
        own = np.stack([np.roll(lag, c) for c in range(4)])
        rest = {"mix": random.standard_normal((4, 3)).astype(np.float32), "bias": np.ones(4, np.float32)}
        table = random.standard_normal((5, 4)).astype(np.float32)
        taps = {"weight": np.ascontiguousarray(weight.T), "lag": own}
        assert_runs(Program(4, False, (Op("filter", (0,), {"weight": weight, "lag": lag}),)), 450)
        assert_runs(Program(4, False, (Op("taps", (0,), taps),)), 450)
        assert_runs(Program(3, False, (Op("taps_input", (0,), {**taps, **rest}),)), 450)
        first = Op(
            "linear", (0,), {"weight": random.standard_normal((3, 2)).astype(np.float32), "bias": np.ones(3, "f")}
        )
        assert_runs(Program(2, False, (first, Op("taps_input", (1,), {**taps, **rest}))), 450)
        assert_runs(Program(5, True, (Op("taps_token", (0,), {**taps, "table": table}),)), 450)


@pytest.mark.parametrize(
    "op", [Op("gated", (0, 0)), Op("rotate", (0,), {"decay": np.float32([[0.6, 0.7], [-0.9, 0.1]])}), Op("sum", (0,))]
)
def test_a_state_may_be_the_output(op):
    assert_runs(Program(4, False, (op,)))


def test_large_gates():
    """Sigmoids far from the middle, where exponentials overflow."""
    program = Program(4, False, (Op("gated", (0, 0)), Op("gelu", (1,)), Op("glu", (2, 0))))
    session, interpreter = Session(to_onnx(program).SerializeToString()), Interpreter(program)
    for size in (1e2, 1e4, 1e6):
        x = np.float32([-size, size, 0, size / 2])
        assert_equal(session.step(x), interpreter.step(x[None])[0])


def test_the_mean_outlasts_its_counter():
    """As the interpreter's: past 2^30 steps, the past counts half."""
    program = Program(2, False, (Op("mean", (0,)),))
    session, interpreter = Session(to_onnx(program).SerializeToString()), Interpreter(program)
    total = np.float64([[3e9, -1e9]])
    for steps in (MOST_STEPS - 1, MOST_STEPS):
        interpreter.state[0] = {"total": total, "steps": np.array([steps], np.float64)}
        session.state = {"state_0": total, "state_0_steps": np.array([steps])}
        x = np.float32([1e8, 2e8])
        assert_equal(session.step(x), interpreter.step(x[None])[0])
        assert session.state["state_0_steps"] == interpreter.state[0]["steps"]


def test_the_standard_alone_says_what_it_computes():
    """onnx's own reference implementation agrees, and no operator is a runtime's own."""
    from onnx.reference import ReferenceEvaluator

    program = optimise(from_model(make("mgrade", readout="mean"), snap=True))
    model = to_onnx(program)
    assert {node.domain for node in model.graph.node} == {""}
    x, evaluator = sequence(program, 20), ReferenceEvaluator(model)
    expected = Interpreter(program).run(x[None])[0]
    session = Session(model.SerializeToString())
    for t in range(len(x)):
        with np.errstate(all="ignore"):
            y = evaluator.run(["y"], {"x": x[t : t + 1], **session.state})[0]
        session.step(x[t])
        assert np.abs(y[0] - expected[t]).max() <= TOLERANCE * np.abs(expected).max()


def test_names_shapes_and_metadata(tmp_path):
    program = from_model(make("mgrade", depth=1, readout="mean"))
    kinds = [op.kind for op in program.ops]
    path = tmp_path / "step.onnx"
    path.write_bytes(to_onnx(program).SerializeToString())
    session = Session(path)
    line, hidden, pool = (kinds.index(kind) for kind in ("filter", "gated", "mean"))
    assert (session.x.name, session.x.shape) == ("x", [1, 5])
    shapes = {name: state.shape for name, state in session.state.items()}
    assert shapes == {
        f"state_{line}": (10, 8),
        f"state_{hidden}": (1, 8),
        f"state_{pool}": (1, 3),
        f"state_{pool}_steps": (1,),
    }
    assert session.names == ["y", *(f"next_{name}" for name in shapes)]
    metadata = session.session.get_modelmeta().custom_metadata_map
    assert metadata == {"format": "mgrade-onnx", "version": "1", "precision": "float32"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["step.onnx"]


def test_equal_arrays_are_stored_once():
    weight, bias = np.ones((50, 50), np.float32), np.zeros(50, np.float32)
    ops = [Op("linear", (value,), {"weight": weight, "bias": bias}) for value in range(4)]
    assert len(to_onnx(Program(50, False, tuple(ops))).SerializeToString()) < 1.2 * weight.nbytes


def test_what_cannot_be_exported_is_refused(monkeypatch):
    program = from_model(make("mgrade"))
    small = quantise(program, calibrate(program, [sequence(program, 50)[None]]))
    with pytest.raises(
        ValueError, match="ONNX export is float32: precision must be float32, got int8 weights, int16 values"
    ):
        to_onnx(small)
    monkeypatch.setattr("mgrade.deploy.onnx.MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"an ONNX file holds 1000 bytes of weights, got \d+"):
        to_onnx(program)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ValueError, match=r"ONNX export needs the package onnx: pip install mgrade\[onnx\]"):
        to_onnx(program)
