"""Texts to token numbers, with the checkpoint's own tokenizer files and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smatter.errors import IncompatibleSource, InvalidSupport

if TYPE_CHECKING:
    from torch import Tensor

MAX_TOKENS = 512
"""Longer texts are cut, whatever the network could take: time grows with the square of the length."""

VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model")

_POSITIONS_AFTER_PADDING = frozenset({"camembert", "mpnet", "roberta", "xlm-roberta"})
"""Their position table has two rows more than the longest text."""


@dataclass(frozen=True)
class Tokenizer:
    """Texts to `input_ids` and `attention_mask`.

    Args:
        encode: a Hugging Face tokenizer.
        n_tokens: the longest text in tokens; longer ones are cut.
        n_vocabulary: token numbers the network knows.
        padding: the number that fills short texts up.
    """

    encode: Any
    n_tokens: int
    n_vocabulary: int
    padding: int

    @classmethod
    def of(cls, config: Mapping[str, Any], folder: Path) -> Tokenizer:
        """The tokenizer in a checkpoint folder; never downloads, never runs code from the folder."""
        if not any((folder / name).is_file() for name in VOCABULARIES):
            raise IncompatibleSource(
                f"{folder} has no tokenizer ({', '.join(VOCABULARIES)}): copy the base's tokenizer files there"
            )
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except Exception as error:  # whatever a damaged file makes it raise
            reason = " ".join(str(error).split())[:200]
            raise IncompatibleSource(f"the tokenizer in {folder} does not load ({reason}): copy it again") from None
        positions = config.get("max_position_embeddings", config.get("n_positions"))
        limits = [MAX_TOKENS, int(min(tokenizer.model_max_length, MAX_TOKENS))]
        if isinstance(positions, int) and positions > 0:
            limits.append(positions - 2 if config.get("model_type") in _POSITIONS_AFTER_PADDING else positions)
        padding = tokenizer.pad_token_id
        size = config.get("vocab_size")
        known = size if isinstance(size, int) else len(tokenizer)
        return cls(tokenizer, max(1, min(limits)), known, padding if isinstance(padding, int) else 0)

    def tokens(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Token numbers and what of them is text, both (n, length), padded on the right to the longest."""
        import torch

        rows = self.encode(list(texts), truncation=True, max_length=self.n_tokens)["input_ids"]
        rows = [row or [self.padding] for row in rows]
        largest = max(max(row) for row in rows)
        if largest >= self.n_vocabulary:
            raise IncompatibleSource(
                f"the tokenizer gives token {largest} but the network knows {self.n_vocabulary}: "
                "copy the tokenizer that belongs to the base"
            )
        ids = torch.full((len(rows), max(map(len, rows))), self.padding)
        mask = torch.zeros_like(ids)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = torch.tensor(row)
            mask[index, : len(row)] = 1
        return {"input_ids": ids, "attention_mask": mask}


def prepared_tokens(ids: Tensor, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Token numbers that somebody else made, (n, length); the config's padding token is no text."""
    import torch

    size = config.get("vocab_size")
    if ids.numel() == 0 or int(ids.min()) < 0 or (isinstance(size, int) and int(ids.max()) >= size):
        raise InvalidSupport(f"token numbers must lie in 0..{size}, below it: tokenize with the base's own tokenizer")
    padding = config.get("pad_token_id")
    mask = torch.ones_like(ids) if not isinstance(padding, int) else (ids != padding).long()
    mask[:, 0] = 1  # a text of padding alone has a mean too
    return {"input_ids": ids.long(), "attention_mask": mask.long()}
