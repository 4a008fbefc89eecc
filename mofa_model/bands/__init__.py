"""How sure an estimate is, from measured runs and how near they are.

    coordinates   where a run stands, and how far two are apart
    table         measured runs as columns (runs.tsv.gz), with the user's own
    band          bands, and what they rest on
    odds          whether a layout fits, and whether it is faster than another; what short runs add
    features      the evidence map of one layout, and what a stack is known with

May import: presets, strategy, spec, errors, units. Imported by: advice, explain, calibrate, and the lab.
"""

from mofa_model.bands.band import (
    SHARE,
    Basis,
    NearRun,
    band_of,
    bands_of,
    basis_of,
    in_a_line,
)
from mofa_model.bands.coordinates import Coordinates, coordinates, words_of
from mofa_model.bands.features import Feature, Seen, Support, features_of, support
from mofa_model.bands.odds import LayoutOdds, ShortRun, in_percent, odds_of, scales_for
from mofa_model.bands.table import MeasuredRuns, in_words, measured_runs

__all__ = [
    "SHARE",
    "Basis",
    "Coordinates",
    "Feature",
    "LayoutOdds",
    "MeasuredRuns",
    "NearRun",
    "Seen",
    "ShortRun",
    "Support",
    "band_of",
    "bands_of",
    "basis_of",
    "coordinates",
    "features_of",
    "in_a_line",
    "in_percent",
    "in_words",
    "measured_runs",
    "odds_of",
    "scales_for",
    "support",
    "words_of",
]
