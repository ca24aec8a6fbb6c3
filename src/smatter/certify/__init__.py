"""Bounds that hold with a stated probability: numbers in, numbers out.

Every bound is about tasks drawn like those it was computed from, and about nothing else.
"""
