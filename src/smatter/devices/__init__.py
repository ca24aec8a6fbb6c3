"""Measuring the device at hand, and what was measured on a file."""
