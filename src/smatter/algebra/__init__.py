"""Pure tensor maths: simplex, thresholds, proximal maps. All work on batches; the last axis is the vector."""
