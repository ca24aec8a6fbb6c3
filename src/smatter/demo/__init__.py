"""The demonstration: small checkpoints made on the spot, mixed, and shown on one page."""
