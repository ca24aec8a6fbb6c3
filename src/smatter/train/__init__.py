"""Training: backbones by supervision over all classes of some domains."""
