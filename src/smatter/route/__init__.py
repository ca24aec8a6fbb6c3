"""From the statistics of a task to weights of sources and experts; tensors in, tensors out."""
