"""How sure an estimate is, from measured runs and how near they are.

    coordinates   where a run stands, and how far two are apart
    table         measured runs as columns (runs.tsv.gz), with the user's own
    odds          bands, whether a layout fits, whether it is faster than another, and what short runs add
    evidence      what a prediction rests on, and the features that a stack is known with

May import: presets, strategy, spec, errors, units. Imported by: advice, explain, calibrate, and the lab.
"""

from mofa_model.bands.coordinates import Coordinates, coordinates, words_of
from mofa_model.bands.evidence import (
    Basis,
    Feature,
    NearRun,
    Support,
    basis_of,
    features_of,
    in_a_line,
    support,
)
from mofa_model.bands.odds import (
    SHARE,
    LayoutOdds,
    ShortRun,
    band_of,
    in_percent,
    odds_of,
    scales_for,
)
from mofa_model.bands.table import QUANTITIES, MeasuredRuns, in_words, measured_runs

__all__ = [
    "QUANTITIES",
    "SHARE",
    "Basis",
    "Coordinates",
    "Feature",
    "LayoutOdds",
    "MeasuredRuns",
    "NearRun",
    "ShortRun",
    "Support",
    "band_of",
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
