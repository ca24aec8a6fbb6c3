"""Texts to token numbers, with the checkpoint's own tokenizer files and no others."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smatter.backbones.configs import supported_type
from smatter.backbones.gate import StrangersError, strangers_errors, transformers, without_panic_messages
from smatter.backbones.tokenizer_files import checked_copy
from smatter.errors import IncompatibleSource, InvalidSupport

if TYPE_CHECKING:
    from torch import Tensor

MAX_TOKENS = 512
"""Longer texts are cut, whatever the network could take: time grows with the square of the length."""

TEXTS_AT_ONCE = 64
"""Texts that the tokenizer is given at a time: it keeps all tokens of each, also those that are cut off."""

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
        model_type = supported_type(config)
        try:
            with checked_copy(folder, model_type) as copy, strangers_errors(), without_panic_messages():
                tokenizer = transformers().AutoTokenizer.from_pretrained(
                    copy, local_files_only=True, trust_remote_code=False
                )
                longest = int(min(tokenizer.model_max_length, MAX_TOKENS))
        except StrangersError as error:
            reason = str(error).replace(str(copy), str(folder))
            raise IncompatibleSource(
                f"the tokenizer in {folder} does not load ({reason}): copy it again, with all of its files"
            ) from None
        positions = config.get("max_position_embeddings", config.get("n_positions"))
        limits = [MAX_TOKENS, longest]
        if isinstance(positions, int) and positions > 0:
            limits.append(positions - 2 if config.get("model_type") in _POSITIONS_AFTER_PADDING else positions)
        padding = tokenizer.pad_token_id
        size = config.get("vocab_size")
        known = size if isinstance(size, int) else len(tokenizer)
        # Padding is masked, so that any number does which the network knows.
        padding = padding if isinstance(padding, int) and 0 <= padding < known else 0
        return cls(tokenizer, max(1, min(limits)), known, padding)

    def tokens(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Token numbers and what of them is text, both (n, length), padded on the right to the longest."""
        import torch

        rows = [
            row or [self.padding]
            for start in range(0, len(texts), TEXTS_AT_ONCE)
            for row in self._rows(texts[start : start + TEXTS_AT_ONCE])
        ]
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

    def _rows(self, texts: Sequence[str]) -> list[list[int]]:
        """Token numbers of each text; a word that the tokenizer has no token for may show only here."""
        try:
            with strangers_errors(), without_panic_messages():
                rows = self.encode(list(texts), truncation=True, max_length=self.n_tokens)["input_ids"]
                return [[operator.index(number) for number in row[: self.n_tokens]] for row in rows]
        except StrangersError as error:
            lacks_unknown = "unk" in str(error).lower()
            first = "give it an unknown token (unk_token in tokenizer.json), or " if lacks_unknown else ""
            remedy = f"{first}copy the tokenizer that belongs to the base"
            raise IncompatibleSource(f"the base's tokenizer cannot read a text ({error}): {remedy}") from None


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
