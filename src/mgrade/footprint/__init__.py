"""Bytes: the paper's formulas for parameters and activation buffers, where a model fits, and what fits a device."""

from mgrade.footprint.chips import CHIPS, Chip, find_chip
from mgrade.footprint.formula import buffer, instantiated, left_out, parameters, state
from mgrade.footprint.measure import PRECISIONS, Footprint, exact, measure
from mgrade.footprint.operations import operations
from mgrade.footprint.published import Published, published
from mgrade.footprint.sizing import Candidate, Limits, parse_bytes, sizes
from mgrade.footprint.subject import Subject, find_subject

__all__ = [
    "CHIPS",
    "PRECISIONS",
    "Candidate",
    "Chip",
    "Footprint",
    "Limits",
    "Published",
    "Subject",
    "buffer",
    "exact",
    "find_chip",
    "find_subject",
    "instantiated",
    "left_out",
    "measure",
    "operations",
    "parameters",
    "parse_bytes",
    "published",
    "sizes",
    "state",
]
