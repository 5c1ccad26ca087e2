"""The demo's classifier: a small Switch encoder, pooled and standardised, under a linear head.

The weights shipped in ``raptor_train/assets/demo`` were made by ``benchmarks/pretrain_demo_model.py`` from public
text alone, without labels. Nothing here is pickled: a model is ``config.json`` and ``model.safetensors``.
"""

from pathlib import Path
from typing import Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import nn
from transformers import SwitchTransformersConfig, SwitchTransformersEncoderModel

from raptor_train.tape import RecordedLinear

DEMO_DIR = Path(__file__).parent / "assets" / "demo"

_CONFIG, _WEIGHTS, _TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
_TIED = "encoder.encoder.embed_tokens.weight"  # the same tensor as encoder.shared.weight
_HEAD = ("head.weight", "head.bias")


class EncoderClassifier(nn.Module):
    """Switch encoder, mean over real tokens, public standardisation, linear head that starts at zero.

    The pooled feature is nearly constant across records: without centring, the gradient of the head would be mostly
    that constant, and per-record clipping would spend the clip norm on it. `feature_mean` and `feature_scale` are
    therefore buffers fixed from public text, never from the private records.

    Attributes:
        encoder: The transformers encoder, with its routers and experts.
        head: ``nn.Linear(d_model, num_labels)``, all zero at first.
        feature_mean: Public mean of the pooled feature, shape [d_model].
        feature_scale: Public factor applied after centring, shape [].
    """

    feature_mean: torch.Tensor
    feature_scale: torch.Tensor

    def __init__(self, config: SwitchTransformersConfig, num_labels: int = 2) -> None:
        super().__init__()
        if num_labels < 1:
            raise ValueError(f"num_labels must be at least 1, got {num_labels}")
        self.encoder = SwitchTransformersEncoderModel(config)
        self.head = nn.Linear(config.d_model, num_labels)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.register_buffer("feature_mean", torch.zeros(config.d_model))
        self.register_buffer("feature_scale", torch.ones(()))

    def pool(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Mean of the encoder's last states over real tokens, shape [B, d_model], before standardisation."""
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state  # [B, T, d]
        mask = attention_mask.to(states.dtype).unsqueeze(-1)  # [B, T, 1]
        # A text without tokens has the feature 0 rather than 0/0.
        pooled: torch.Tensor = (states * mask).sum(1) / mask.sum(1).clamp(min=1.0)
        return pooled

    def features(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """The head's input: pooled, centred and scaled with the public statistics, shape [B, d_model]."""
        return (self.pool(input_ids, attention_mask) - self.feature_mean) * self.feature_scale

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Logits of shape [B, num_labels] from ``input_ids`` and ``attention_mask`` of shape [B, T]."""
        logits: torch.Tensor = self.head(self.features(input_ids, attention_mask))
        return logits

    def save_pretrained(self, directory: str | Path, *, with_head: bool = False) -> None:
        """Writes ``config.json`` and ``model.safetensors`` (float16 on disk).

        Args:
            directory: Made when it does not exist.
            with_head: Also write the head. A head trained on private records must not be written to a body that is
                called public.

        Raises:
            ValueError: While adapters are attached: their tensors are not the public body's.
        """
        if isinstance(self.head, RecordedLinear):
            raise ValueError("the model is adapted: call detach() on its adapter before saving the body")
        target = Path(directory)
        target.mkdir(parents=True, exist_ok=True)
        skipped = {_TIED} if with_head else {_TIED, *_HEAD}
        tensors = {
            name: tensor.detach().cpu().to(torch.float16).contiguous()
            for name, tensor in self.state_dict().items()
            if name not in skipped
        }
        save_file(tensors, target / _WEIGHTS)
        (target / _CONFIG).write_text(self.encoder.config.to_json_string(), encoding="utf-8")

    @classmethod
    def from_pretrained(cls, directory: str | Path, num_labels: int = 2) -> Self:
        """Reads what `save_pretrained` wrote, as float32, in evaluation mode.

        Args:
            directory: Holds ``config.json`` and ``model.safetensors``.
            num_labels: Outputs of the head, which stays at zero when the file has none.

        Returns:
            The model. The global random generator is left as it was.

        Raises:
            ValueError: A file is missing, or its tensors do not fit the configuration.
        """
        source = Path(directory)
        for name in (_CONFIG, _WEIGHTS):
            if not (source / name).is_file():
                raise ValueError(f"{source} holds no {name}; save_pretrained writes it")
        config = SwitchTransformersConfig.from_json_file(str(source / _CONFIG))
        with torch.random.fork_rng(devices=[]):
            model = cls(config, num_labels)
        try:
            tensors = {name: tensor.float() for name, tensor in load_file(source / _WEIGHTS).items()}
            missing, unexpected = model.load_state_dict(tensors, strict=False)
        except SafetensorError as error:
            raise ValueError(f"{source / _WEIGHTS} is no safetensors file: {error}") from error
        except RuntimeError as error:
            raise ValueError(f"{source / _WEIGHTS} does not fit its configuration: {error}") from error
        if unexpected or set(missing) - {_TIED, *_HEAD}:
            raise ValueError(f"{source / _WEIGHTS} lacks {missing} or has unknown {unexpected}")
        model.encoder.encoder.embed_tokens = model.encoder.shared  # tie again: the file has one copy
        return model.eval()


def load_demo_model(num_labels: int = 2) -> EncoderClassifier:
    """The shipped body, pretrained on public IMDb text without labels, under a zero head.

    Example:
        >>> model = load_demo_model()
        >>> model.head.weight.abs().max().item()
        0.0
    """
    return EncoderClassifier.from_pretrained(DEMO_DIR, num_labels)


def load_demo_tokenizer() -> Tokenizer:
    """The shipped WordPiece tokenizer, trained on public IMDb text; lower-cases, adds no special tokens.

    Example:
        >>> load_demo_tokenizer().encode("A fine film").tokens
        ['a', 'fine', 'film']
    """
    path = DEMO_DIR / _TOKENIZER
    if not path.is_file():
        raise ValueError(f"{path} is missing: reinstall the package")
    tokenizer: Tokenizer = Tokenizer.from_file(str(path))
    return tokenizer
