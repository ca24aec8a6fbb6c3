"""Which sources of Words there are, what each learns from, and for how long."""

from smatter.train.supervised import TrainingSettings
from smatter.train.texts import Omission

SPECIALISTS: dict[str, tuple[str, ...]] = {
    "things": ("people", "life", "artifacts"),
    "notions": ("ideas", "actions"),
    "trades": ("fields", "packages", "quotations"),
}
"""Domains of each specialist; the base learns from none of them."""

N_TOKENS = 32
"""Longer texts are cut while a network trains."""

FROZEN = ("embeddings", "pooler")
"""Half of the parameters are vectors of words, most of which a domain does not have; the pooler is not used."""

TUNING = TrainingSettings(
    n_steps=300,
    batch_size=32,
    learning_rate=1e-4,
    weight_decay=0.01,
    warm_up=0.1,
    imprint=True,
    variation=Omission(0.2),
)
