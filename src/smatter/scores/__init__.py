"""Numbers in, numbers out: how sure a mean or a difference is."""
