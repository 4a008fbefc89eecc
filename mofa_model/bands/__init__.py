"""How sure an estimate is, from measured runs and how near they are.

    coordinates   where a run stands, and how far two are apart
    table         measured runs as columns (runs.tsv.gz), with the user's own
    band          bands, and what they rest on
    features      the evidence map of one layout

May import: presets, strategy, spec, errors, units. Imported by: advice, explain, calibrate, and the lab.
"""

from mofa_model.bands.band import SHARE, Band, Basis, NearRun, band_of, bands_of, basis_of, in_a_line
from mofa_model.bands.coordinates import Coordinates, coordinates
from mofa_model.bands.features import Feature, Seen, features_of
from mofa_model.bands.table import MeasuredRuns, in_words, measured_runs

__all__ = [
    "SHARE",
    "Band",
    "Basis",
    "Coordinates",
    "Feature",
    "MeasuredRuns",
    "NearRun",
    "Seen",
    "band_of",
    "bands_of",
    "basis_of",
    "coordinates",
    "features_of",
    "in_a_line",
    "in_words",
    "measured_runs",
]
