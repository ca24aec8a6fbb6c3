"""Strategies for JSON and files that are almost right."""

import json
from typing import Any

from hypothesis import strategies as st

ODD_NUMBERS = st.sampled_from([0, 1, -1, 2**31, 2**53, 2**63, 2**64, 10**30, 1.0, 0.5, 1e308, True, False])
SCALARS = (
    st.none() | ODD_NUMBERS | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False, allow_infinity=False)
)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner))


@st.composite
def mutated_bytes(draw: st.DrawFn, original: bytes, n_changes: int = 4) -> bytes:
    """A file with a few bytes changed, inserted or cut out."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, n_changes))):
        place = draw(st.integers(0, len(data)))
        cut = draw(st.sampled_from([0, 1, 1, 1, 2, 8, 64, len(data)]))
        data[place : place + cut] = draw(st.binary(max_size=3) | st.sampled_from([b'"', b"-", b"\\ud800", b" ", b"[]"]))
    return bytes(data)


@st.composite
def mutated_json(draw: st.DrawFn, original: Any, n_changes: int = 3) -> Any:
    """A document with a few values replaced, keys renamed or entries dropped, anywhere in its tree."""
    document = json.loads(json.dumps(original))
    for _ in range(draw(st.integers(1, n_changes))):
        parent, key, node = None, None, document
        while isinstance(node, dict | list) and node and draw(st.integers(0, 5)):
            parent, key = node, draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
            node = parent[key]
        if parent is None:
            return draw(JSON)
        action = draw(st.sampled_from(["replace", "drop", "rename", "copy"]))
        if action == "replace":
            parent[key] = draw(JSON)
        elif isinstance(parent, list):
            parent.pop(key) if action == "drop" else parent.append(node)
        elif action == "copy":
            parent[draw(st.sampled_from(sorted(parent)))] = node
        else:
            value = parent.pop(key)
            if action == "rename":
                parent[draw(st.text(max_size=6))] = value
    return document
