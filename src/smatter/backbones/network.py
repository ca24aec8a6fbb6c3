"""A live Hugging Face backbone: prepared inputs to features, whatever the family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from smatter.backbones.names import load_tensors
from smatter.errors import IncompatibleSource

if TYPE_CHECKING:
    import torch
    from torch import Tensor

CHUNK = 64
"""Rows of one forward pass; more are passed through in turn, so that activations stay bounded."""

Inputs = dict[str, "Tensor"]
"""Arguments of the model's forward pass, each with a row per input."""


class Network:
    """A backbone without head, in float32 and evaluation mode, made from its config alone.

    Args:
        config: the content of config.json. Code that it names is never run and nothing is downloaded.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        import torch
        from transformers import AutoConfig, AutoModel

        model_type = config.get("model_type")
        if not isinstance(model_type, str):
            raise IncompatibleSource("the base has no config.json with a model_type: copy it to the base's folder")
        settings = {key: value for key, value in config.items() if key not in _IGNORED}
        try:
            parsed = AutoConfig.for_model(model_type, **settings)
            # What the checkpoint does not fill, such as an unused pooler, starts alike every time.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                model = AutoModel.from_config(parsed, dtype=torch.float32, trust_remote_code=False)
        except Exception as error:  # configs of strangers raise whatever they like
            reason = " ".join(str(error).split())[:200]
            raise IncompatibleSource(
                f"no backbone of type {model_type[:80]!r} can be built from the base's config.json ({reason}): "
                "use a checkpoint that AutoModel loads"
            ) from None
        self.config: dict[str, Any] = parsed.to_dict()
        self.model: torch.nn.Module = model.eval()

    @property
    def takes_images(self) -> bool:
        """Whether its input is pixels, and not tokens."""
        return getattr(self.model, "main_input_name", "input_ids") == "pixel_values"

    def random_inputs(self, n_rows: int, length: int | None = None) -> Inputs:
        """Rows of the right shape, whatever is in them.

        Args:
            n_rows: how many.
            length: tokens of a text, 32 by default, or the side of a picture, by default what the config says.
        """
        import torch

        generator, config = torch.Generator().manual_seed(0), self.config
        if self.takes_images:
            side = length or config.get("image_size") or 224
            height, width = (side, side) if isinstance(side, int) else side
            shape = (n_rows, config.get("num_channels", 3), height, width)
            return {"pixel_values": torch.randn(shape, generator=generator).to(next(self.model.parameters()).dtype)}
        tokens = torch.randint(1, int(config["vocab_size"]), (n_rows, length or 32), generator=generator)
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}

    def use(self, tensors: Mapping[str, Tensor]) -> None:
        """Make the model use these tensors, by name on disk, without copying: see `load_tensors`."""
        load_tensors(self.model, tensors)

    def features(self, inputs: Inputs) -> Tensor:
        """One vector per row, (n, d), in one forward pass.

        Tokens are averaged over what the mask says is text; maps (n, c, h, w) give the model's own pooled output.
        """
        inputs = _trimmed(inputs)
        output = self.model(**inputs)
        hidden: Tensor = output.last_hidden_state
        if hidden.ndim == 4:
            pooled = getattr(output, "pooler_output", None)
            return (hidden.mean(dim=(2, 3)) if pooled is None else pooled).flatten(1)
        if "attention_mask" not in inputs:
            return hidden.mean(dim=1)
        mask = inputs["attention_mask"].to(hidden.dtype).unsqueeze(-1)
        return (hidden * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


_IGNORED = frozenset({"model_type", "auto_map", "torch_dtype", "dtype", "quantization_config", "architectures"})


def chunks(inputs: Inputs, size: int = CHUNK) -> Iterator[Inputs]:
    """Cut inputs into parts of `size` rows; the last may be shorter."""
    n_rows = len(next(iter(inputs.values())))
    for start in range(0, n_rows, size):
        yield {name: tensor[start : start + size] for name, tensor in inputs.items()}


def _trimmed(inputs: Inputs) -> Inputs:
    """Without columns on the right that are padding in every row."""
    if "attention_mask" not in inputs:
        return inputs
    used = int(inputs["attention_mask"].any(dim=0).nonzero().max()) + 1
    return {name: tensor[:, :used] for name, tensor in inputs.items()}
