"""Bytes: the paper's formulas for parameters and activation buffers."""

from mgrade.footprint.formula import buffer, left_out, parameters

__all__ = ["buffer", "left_out", "parameters"]
