"""The model: encoder, layers and readout, for whole sequences, chunks and single steps alike."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import _pytree

from mgrade.nn.block import Block, altered, linear_layer
from mgrade.nn.config import ModelConfig
from mgrade.nn.convolution import DelayConv
from mgrade.nn.readout import Readout
from mgrade.ops import _check
from mgrade.ops._backend import is_autocast

# Vocabularies up to this size are encoded by a product with one-hot vectors, whose gradient is a product too: for few
# symbols that is faster than an embedding, whose gradient sums rows.
ONE_HOT_UP_TO = 256
# The kinds of tensors in a state.
KINDS = {
    "floating-point": Tensor.is_floating_point,
    "complex": Tensor.is_complex,
    "int64": lambda tensor: tensor.dtype == torch.int64,
}


class State(NamedTuple):
    """Everything a model remembers between calls: a pytree of tensors, batch first."""

    history: tuple[Tensor, ...]
    """Per layer, the delay line (batch, past, dim), oldest first."""
    hidden: tuple[Tensor, ...]
    """Per layer, the recurrent state (batch, hidden)."""
    total: Tensor
    """The running total of a pooled readout (batch, dim)."""
    steps: Tensor
    """The number of steps in it (batch)."""


_pytree._register_namedtuple(State, serialized_type_name="mgrade.State")
torch.serialization.add_safe_globals([State])  # so that an exported program with a state loads without pickle


class Model(nn.Module):
    """A sequence model that runs over sequences, chunks and single samples with the same result.

    Split an input anywhere: if the state is passed on, the outputs are the same.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        if not isinstance(config, ModelConfig):
            raise ValueError(f"config must be a ModelConfig, got {type(config).__name__}")
        self.config = config
        self.encoder = linear_layer(config.inputs, config.dim)
        self.layers = nn.ModuleList(Block(config, layer) for layer in range(config.depth))
        self.readout = Readout(config)

    def forward(
        self,
        x: Tensor,
        state: State | None = None,
        *,
        lengths: Tensor | None = None,
        reset: Tensor | None = None,
        last: int | None = None,
    ) -> tuple[Tensor, State]:
        """Runs over any number of steps, from `state` (default: the beginning).

        x (batch, time, inputs), or token ids (batch, time).
        lengths (batch): the number of valid steps per row; the rest is padding on the right.
        reset (batch, time), boolean: restart before the steps where it is true.
        last: return outputs for this many last steps only (readout `every`), and skip what only the others need.
        Under CUDA autocast, activations are in its dtype; states and sums stay in float32.
        Returns outputs, (batch, time, outputs) for readout `every` and (batch, outputs) for pooled ones, and
        the state after the last valid step. Outputs at padding are meaningless.
        """
        self._check_input(x)
        batch, time = x.shape[:2]
        self._check_last(last, time, lengths)
        if state is not None:
            self._check_state(state, batch)
        if lengths is not None:
            _check.row_lengths(lengths, batch, time)
            lengths = lengths.to(x.device, torch.int64)
            valid = torch.arange(time, device=x.device) < lengths[:, None]
            x = torch.where(valid if self.config.tokens else valid[..., None], x, 0)
        self._check_tokens(x)
        if reset is not None:
            _check.reset_mask(reset, batch, time)
            reset = reset.to(x.device) if lengths is None else reset.to(x.device) & valid
        features = self._encode(x)
        histories, hiddens = [], []
        for index, layer in enumerate(self._blocks()):
            before = (None, None) if state is None else (state.history[index], state.hidden[index])
            final = index == self.config.depth - 1
            features, (history, hidden) = layer(features, before, reset, lengths, last if final else None)
            histories.append(history)
            hiddens.append(hidden)
        pooled = self._empty_pool(batch) if state is None else (state.total, state.steps)
        y, (total, steps) = self.readout(features, pooled, reset, lengths)
        return y, State(tuple(histories), tuple(hiddens), total, steps)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        """One step: x_t (batch, inputs), or token ids (batch) -> outputs (batch, outputs) and the next state."""
        if isinstance(x_t, Tensor) and x_t.dim() != (wanted := 1 if self.config.tokens else 2):
            shape = "(batch)" if wanted == 1 else f"(batch, {self.config.inputs})"
            raise ValueError(f"x_t must have shape {shape}, got {tuple(x_t.shape)}")
        y, state = self(x_t[:, None] if isinstance(x_t, Tensor) else x_t, state)
        return (y[:, 0] if self.config.readout == "every" else y), state

    def initial_state(self, batch: int) -> State:
        """The state before the first step of `batch` sequences."""
        _check_batch(batch)
        histories, hiddens = zip(*(layer.initial_state(batch) for layer in self._blocks()), strict=True)
        return State(histories, hiddens, *self._empty_pool(batch))

    def constrain_(self) -> None:
        """Clamps the delay positions to their range: call after every update (see `DelayConv`)."""
        convs = [part for part in self.modules() if isinstance(part, DelayConv)]
        positions: list[Tensor] = [conv.position for conv in convs]
        if positions:
            with torch.no_grad():
                torch._foreach_clamp_min_(positions, 0.0)
                torch._foreach_clamp_max_(positions, convs[0].last_position)

    def save(self, folder: str | Path) -> None:
        """Writes `folder`: the configuration as JSON and the weights as safetensors, all or nothing."""
        from mgrade.nn.storage import save

        save(self, folder)

    @staticmethod
    def from_pretrained(
        pretrained_model_name_or_path: str | Path,
        *,
        force_download: bool = False,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        revision: str | None = None,
    ) -> Model:
        """The model of a folder, of a finished run or, as `user/name`, from a hub, in evaluation mode.

        The other options are huggingface_hub's.
        """
        from mgrade.hub import locate
        from mgrade.nn.storage import load

        folder = locate(
            pretrained_model_name_or_path,
            force_download=force_download,
            token=token,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            revision=revision,
        )
        return load(folder).eval()

    def save_pretrained(
        self,
        save_directory: str | Path,
        *,
        result: str | Path | None = None,
        license: str = "mit",
        repo_id: str | None = None,
        push_to_hub: bool = False,
        **push_to_hub_kwargs: Any,
    ) -> str | None:
        """Writes what `save` does and a model card, README.md; with `push_to_hub`, uploads it as `push_to_hub` does.

        result: the model's result file, or the folder of its finished run, for the figures of the card.
        """
        from mgrade.hub import save

        folder = Path(save_directory)
        name = repo_id or folder.absolute().name
        save(self, folder, name, result, license)
        if not push_to_hub:
            return None
        return self.push_to_hub(name, result=result, license=license, card=folder / "README.md", **push_to_hub_kwargs)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        result: str | Path | None = None,
        card: str | Path | None = None,
        license: str = "mit",
        commit_message: str = "Push model using mgrade.",
        private: bool | None = None,
        token: str | bool | None = None,
        branch: str | None = None,
        create_pr: bool | None = None,
        allow_patterns: list[str] | str | None = None,
        ignore_patterns: list[str] | str | None = None,
        delete_patterns: list[str] | str | None = None,
    ) -> str:
        """Uploads the model and its card (see `save_pretrained`) in one commit, and returns the commit's address.

        card: a README.md of your own, used if there is no result. With neither, the repository keeps the one it has.
        The other options are huggingface_hub's; by default, `delete_patterns` matches the weights of earlier commits.
        """
        from mgrade.hub import push

        return push(
            self,
            repo_id,
            result=result,
            card=card,
            license=license,
            commit_message=commit_message,
            private=private,
            token=token,
            branch=branch,
            create_pr=create_pr,
            allow_patterns=allow_patterns,
            ignore_patterns=ignore_patterns,
            delete_patterns=delete_patterns,
        )

    @property
    def _dtype(self) -> torch.dtype:
        """The dtype of the weights, also if the encoder was replaced by another module."""
        weight = getattr(self.encoder, "weight", None)
        return weight.dtype if isinstance(weight, Tensor) else next(self.parameters()).dtype

    def _blocks(self) -> Iterable[Block]:
        """The layers, each a `Block` or a wrapper that behaves as one."""
        return cast(Iterable[Block], self.layers)

    def _empty_pool(self, batch: int) -> tuple[Tensor, Tensor]:
        return self.readout.initial_state(batch, next(self.parameters()))

    def _encode(self, x: Tensor) -> Tensor:
        """The first features (batch, time, dim), in the dtype of autocast on CUDA."""
        dtype = self._dtype
        if x.is_cuda and torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
        if not self.config.tokens:
            return self.encoder(x).to(dtype)
        if self.config.inputs > ONE_HOT_UP_TO and not altered(self.encoder):
            return (F.embedding(x, self.encoder.weight.t()) + self.encoder.bias).to(dtype)
        symbols = torch.arange(self.config.inputs, device=x.device)
        if x.is_cuda:  # time is contiguous there
            one_hot = (x[:, None] == symbols[:, None]).to(dtype).transpose(1, 2)
        else:
            one_hot = (x[..., None] == symbols).to(dtype)
        return self.encoder(one_hot)

    def _check_input(self, x: Any) -> None:
        config = self.config
        if not isinstance(x, Tensor):
            raise ValueError(f"x must be a tensor, got {type(x).__name__}")
        if config.tokens:
            if x.dtype not in (torch.int32, torch.int64) or x.dim() != 2:
                raise ValueError(f"x must be token ids (batch, time), int32 or int64, got {x.dtype} {tuple(x.shape)}")
        elif not x.is_floating_point() or x.dim() != 3 or x.shape[2] != config.inputs:
            raise ValueError(f"x must be floating point (batch, time, {config.inputs}), got {x.dtype} {tuple(x.shape)}")
        elif x.dtype != (dtype := self._dtype) and not is_autocast(x):
            raise ValueError(f"x must have the dtype of the weights, {dtype}, got {x.dtype}")
        if config.pair and x.shape[0] % 2:
            raise ValueError(f"x must hold pairs of rows, first documents then second ones, got {x.shape[0]} rows")

    def _check_tokens(self, x: Tensor) -> None:
        """Refuses ids outside the vocabulary; padding, whatever it held, is 0 by now."""
        if self.config.tokens and x.numel() and _check.values_visible(x):
            low, high = (int(end) for end in torch.aminmax(x))
            if low < 0 or high >= self.config.inputs:
                worst = low if low < 0 else high
                raise ValueError(f"x must hold token ids from 0 to {self.config.inputs - 1}, got {worst}")

    def _check_last(self, last: int | None, time: int, lengths: Tensor | None) -> None:
        if last is None:
            return
        if self.config.readout != "every" or lengths is not None:
            what = "lengths" if lengths is not None else f"readout {self.config.readout!r}"
            raise ValueError(f"last cannot go with {what}: it chooses among the outputs of every step")
        if isinstance(last, bool) or not isinstance(last, int) or not 0 <= last <= time:
            raise ValueError(f"last must be a number of steps from 0 to {time}, got {last!r}")

    def _check_state(self, state: Any, batch: int) -> None:
        """Refuses a state that does not belong to this model and `batch` rows."""
        if not isinstance(state, State):
            raise ValueError(f"state must come from this model's initial_state or a call, got {type(state).__name__}")
        depth = self.config.depth
        for name in ("history", "hidden"):
            given = getattr(state, name)
            if not isinstance(given, (tuple, list)):
                raise ValueError(f"state.{name} must be a tuple of tensors, got {type(given).__name__}")
            if len(given) != depth:
                raise ValueError(f"state.{name} must have one entry per layer, {depth}, got {len(given)}")
        config, real = self.config, "floating-point"
        dim = config.dim if config.conv != "none" else 0
        units = config.hidden if config.recurrence != "none" else 0
        kind = "complex" if config.recurrence == "lru" else real
        for layer in range(depth):
            _check_part("history", layer, state.history[layer], (batch, config.memory(layer), dim), real)
            _check_part("hidden", layer, state.hidden[layer], (batch, units), kind)
        _check_part("total", None, state.total, (batch, 0 if config.readout == "every" else config.dim), real)
        _check_part("steps", None, state.steps, (batch,), "int64")


def _check_part(field: str, layer: int | None, tensor: Any, shape: tuple[int, ...], kind: str) -> None:
    if isinstance(tensor, Tensor) and tensor.shape == shape and KINDS[kind](tensor):
        return
    name = f"state.{field}" if layer is None else f"state.{field}[{layer}]"
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} must be a tensor, got {type(tensor).__name__}")
    if tensor.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}: is it another model's?")
    raise ValueError(f"{name} must be {kind}, got {tensor.dtype}")


def _check_batch(batch: Any) -> None:
    if isinstance(batch, bool) or not isinstance(batch, (Integral, torch.SymInt)):
        raise ValueError(f"batch must be a whole number, got {batch!r}")
    if batch < 0:
        raise ValueError(f"batch must be at least 0, got {batch}")
