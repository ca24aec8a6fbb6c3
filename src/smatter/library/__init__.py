"""Checkpoints on disk: the manifest, a reader that trusts nothing, writers that never leave half a file."""
