"""Forecasts: predictions with bands that are written down, dated and hashed before anybody
publishes the results.

A file of questions names jobs; a forecast holds them with what is predicted today, and the SHA-256
of all of that; results come later, and are kept beside it. Nothing that was forecast is fitted
before it was scored (`unscored`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.validate.cases import case_of as case_of_record
from mofa_lab.validate.record import Record, read
from mofa_model import presets
from mofa_model.bands.coordinates import coordinates
from mofa_model.bands.odds import SHARE, band_of, odds_of
from mofa_model.bands.table import measured_runs
from mofa_model.calibrate.cases import Case, shipped
from mofa_model.calibrate.runs import case_of, number_of, seconds_of
from mofa_model.errors import BadFile, BadValue, InputError
from mofa_model.estimate import estimate
from mofa_model.estimate.terms import device_memory_limit, host_memory_limit
from mofa_model.files import from_json, read_text, write_text
from mofa_model.strategy import format_strategy
from mofa_model.tables import Column, Table, as_markdown
from mofa_model.units import GIB

Array = NDArray[np.floating[Any]]

FOLDER: Final = Path("lab/data/forecasts")
"""Where forecasts and their results are kept, in a clone."""
ENDING: Final = ".forecast.json"
RESULTS: Final = ".results.json"
"""The results of NAME.forecast.json are NAME.results.json."""

LIKELY: Final = (0.5, 0.9)
"""Edges of the chances to fit that are told apart. [1]"""

ABOUT: Final = """\
## Forecasts

Forecasts are written before results exist, by `mofa validate forecast`; the SHA-256 covers every question, every figure and the date. What a forecast
asks about is not fitted before it was scored: `mofa fit` refuses such runs. Bands are made to hold {share:.0f} %; the last column is the
chance of so uneven a share if they do.
"""  # noqa: E501


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecastOutcome:
    """What came of one forecast job."""

    id: str
    predicted_s: float
    measured_s: float | None
    """None where the job did not train."""
    inside: bool | None
    """Whether the step lies in its band."""
    memory_inside: bool | None
    """Whether the memory does; None where nobody told it."""
    fits: float
    """The chance that it fits, as it was said. [1]"""
    trained: bool

    @property
    def error(self) -> float | None:
        """Predicted / measured - 1. [1]"""
        return self.predicted_s / self.measured_s - 1.0 if self.measured_s else None


def is_forecast(document: Any) -> bool:
    """Whether a JSON document is a forecast and not a file of questions."""
    return isinstance(document, Mapping) and "sha256" in document


def digest(content: Mapping[str, Any]) -> str:
    """SHA-256 of a forecast's content in one canonical form: sorted keys, no spaces.

    >>> digest({"b": 1, "a": [0.5]}) == digest({"a": [0.5], "b": 1})
    True
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def forecast_of(path: Path | str, today: date | None = None) -> dict[str, Any]:
    """The forecast of a file of questions, as it stands today."""
    document = from_json(read_text(path), path)
    rows = document.get("questions") if isinstance(document, Mapping) else None
    if not isinstance(rows, list) or not rows:
        raise BadFile(path, "must hold an object with `name` and a list of `questions`")
    names = [str(row.get("id") or "") if isinstance(row, Mapping) else "" for row in rows]
    if len(set(names)) < len(names) or "" in names:
        raise BadFile(path, "every question needs an `id` of its own")
    publishers = document.get("publishers", [])
    if not isinstance(publishers, list) or not all(isinstance(name, str) for name in publishers):
        raise BadValue("publishers", publishers, "give a list of names, as cases have them")
    about = Record({name: value for name, value in document.items() if name != "questions"})
    runs = measured_runs()
    content = {
        "name": about.text("name"),
        "about": about.text("about", ""),
        "publishers": publishers,
        "written": (today or datetime.now(UTC).date()).isoformat(),
        "constants": _constants(),
        "runs": runs.digest,
        "share": SHARE,
        "jobs": [_prediction(row, position) for position, row in enumerate(rows, start=1)],
    }
    return {"forecast": content, "sha256": digest(content)}


def _constants() -> str:
    """SHA-256 of all constants that predictions depend on."""
    return hashlib.sha256(
        Path(presets.__file__).with_name("constants.toml").read_bytes()
    ).hexdigest()


def _prediction(row: Mapping[str, Any], position: int) -> dict[str, Any]:
    """One question with what is predicted of it."""
    case = _job(row, position)
    cluster = replace(case.cluster, calibration=shipped(case.key))
    priced = estimate(case.workload, cluster, case.strategy)
    estimated = float(priced.footprint.estimated)
    place = replace(
        coordinates(case.workload, case.cluster, case.strategy, estimated),
        stack=case.key.stack,
        publisher=case.publisher,
    )
    runs = measured_runs()
    step, peak = float(priced.step_time), float(np.max(priced.footprint.peak))
    limit = float(device_memory_limit(cluster))
    bands = {name: band_of(runs, place, name) for name in ("step", "memory")}
    room = odds_of(runs, [place]).below("memory", limit / peak)
    host = float(np.max(priced.footprint.host)) <= host_memory_limit(cluster)
    return {
        "question": dict(row),
        "step_s": _rounded(step),
        "step_band_s": [_rounded(step * bands["step"].lower), _rounded(step * bands["step"].upper)],
        "memory_gib": _rounded(peak / GIB),
        "memory_band_gib": [
            _rounded(peak / GIB * bands["memory"].lower),
            _rounded(peak / GIB * bands["memory"].upper),
        ],
        "memory_limit_gib": _rounded(limit / GIB),
        "fits": _rounded(float(room[0]) if host else 0.0),
    }


def _job(row: Mapping[str, Any], position: int = 1) -> Case:
    """The job that a question asks about; it may say who will run it, whose other runs then narrow
    its band.
    """
    asked = {name: value for name, value in row.items() if name != "publisher"}
    return replace(
        case_of(asked, position, measured=False), publisher=Record(row).text("publisher", "")
    )


def _rounded(value: float) -> float:
    """Five digits: enough to score, and the same on every machine."""
    return float(f"{value:.5g}")


def save(document: Mapping[str, Any], path: Path | str) -> None:
    """Write a forecast to a new file: one that exists is never replaced."""
    if Path(path).exists():
        raise BadValue("--to", str(path), "a forecast is written once; give the name of a new file")
    write_text(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def load(path: Path | str) -> Mapping[str, Any]:
    """The content of a forecast, if nobody changed it."""
    document = from_json(read_text(path), path)
    if not is_forecast(document) or not isinstance(document.get("forecast"), Mapping):
        raise BadFile(
            path, "is no forecast: `mofa validate forecast QUESTIONS.json --to FILE` writes one"
        )
    content: Mapping[str, Any] = document["forecast"]
    if digest(content) != document["sha256"]:
        raise BadFile(
            path,
            "was changed after it was written: its content has not the SHA-256 "
            f"{str(document['sha256'])[:12]}…",
        )
    if not content.keys() >= {"name", "written", "publishers", "share", "jobs"}:
        raise BadFile(path, "is no forecast of this version: its content lacks fields")
    return content


def results_of(path: Path | str, content: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What was measured of a forecast's jobs, by their ids: runs as `mofa calibrate --from-runs`
    takes them, or cases of the lab.
    """
    asked = {job["question"]["id"]: job["question"] for job in content["jobs"]}
    results: dict[str, dict[str, Any]] = {}
    for values in read(path)[0]:
        name = values.get("id") if isinstance(values, Mapping) else None
        if name in asked:
            try:
                results[str(name)] = _measured(values, _job(asked[name]))
            except InputError as error:
                raise BadFile(path, f"{name}: {error}") from None
    return results


def _measured(values: Mapping[str, Any], asked: Case) -> dict[str, Any]:
    """The measured figures of one result; raises where the run is of another job than was asked."""
    if "measured" in values:
        case = case_of_record(Record(values))
        _require_same_job(case, asked)
        measured: dict[str, Any] = {"trained": not case.out_of_memory}
        for figure in case.measured:
            if figure.quantity == "step_time_s":
                measured["step_s"] = figure.value
            elif figure.quantity == "memory_gib":
                measured["memory_gib"] = figure.value / GIB
    else:
        trained = values.get("trained", True)
        if not isinstance(trained, bool):
            raise BadValue("trained", trained, "give true or false")
        measured = {"trained": trained}
        if values.get("step_seconds") is not None:
            measured["step_s"] = seconds_of(values["step_seconds"])
        if values.get("memory_gib") is not None:
            measured["memory_gib"] = number_of(values, "memory_gib")
    if measured["trained"] and "step_s" not in measured:
        raise BadValue("step_seconds", None, "give a step time, or say that the run did not train")
    return measured


def _require_same_job(case: Case, asked: Case) -> None:
    """Refuse a run of another job than the one that was asked about."""
    for name, value, other in (
        ("gpus", int(case.cluster.gpus), int(asked.cluster.gpus)),
        ("gpu", case.cluster.device.name, asked.cluster.device.name),
        ("global_batch", case.workload.training.global_batch, asked.workload.training.global_batch),
        (
            "precision",
            case.workload.training.precision.name,
            asked.workload.training.precision.name,
        ),
        ("strategy", format_strategy(case.strategy), format_strategy(asked.strategy)),
    ):
        if value != other:
            raise BadValue(name, value, f"the forecast is of {other}")


def outcomes_of(
    content: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]]
) -> list[ForecastOutcome]:
    """Forecast jobs whose results are known."""
    outcomes_known = []
    for job in content["jobs"]:
        result = results.get(job["question"]["id"])
        if result is None:
            continue
        step = result.get("step_s")
        outcomes_known.append(
            ForecastOutcome(
                id=job["question"]["id"],
                predicted_s=job["step_s"],
                measured_s=step,
                inside=_inside(step, job["step_band_s"]),
                memory_inside=_inside(result.get("memory_gib"), job["memory_band_gib"]),
                fits=job["fits"],
                trained=bool(result["trained"]),
            )
        )
    return outcomes_known


def _inside(value: float | None, band: Sequence[float]) -> bool | None:
    return None if value is None else bool(band[0] <= value <= band[1])


def scores(content: Mapping[str, Any], outcomes: Sequence[ForecastOutcome]) -> dict[str, Any]:
    """Errors, how many bands held and whether that is chance, and how true the chances to
    fit were.
    """
    from scipy.stats import binomtest

    errors = [abs(outcome.error) for outcome in outcomes if outcome.error is not None]
    inside = [outcome.inside for outcome in outcomes if outcome.inside is not None]
    memory = [outcome.memory_inside for outcome in outcomes if outcome.memory_inside is not None]
    chances = np.array([outcome.fits for outcome in outcomes])
    trained = np.array([outcome.trained for outcome in outcomes], dtype=float)
    return {
        "jobs": len(content["jobs"]),
        "scored": len(outcomes),
        "median_error": float(np.median(errors)) if errors else None,
        "mean_error": float(np.mean(errors)) if errors else None,
        "inside": sum(inside),
        "share_inside": float(np.mean(inside)) if inside else None,
        "chance_of_share": float(binomtest(sum(inside), len(inside), content["share"]).pvalue)
        if inside
        else None,
        "memory_scored": len(memory),
        "memory_inside": sum(memory),
        "fits_reliability": _reliability(chances, trained),
        "fits_said": float(chances.mean()) if len(outcomes) else None,
        "fits_was": float(trained.mean()) if len(outcomes) else None,
        "fits_brier": float(np.mean((chances - trained) ** 2)) if len(outcomes) else None,
    }


def _reliability(chances: Array, trained: Array) -> list[dict[str, Any]]:
    """Chances to fit in three classes: what was said of each on average, and how many of
    them trained.
    """
    class_of_job = np.digitize(chances, LIKELY)
    return [
        {
            "said": float(chances[class_of_job == place].mean()),
            "was": float(trained[class_of_job == place].mean()),
            "jobs": int((class_of_job == place).sum()),
        }
        for place in range(len(LIKELY) + 1)
        if (class_of_job == place).any()
    ]


def record(path: Path | str, results: Mapping[str, Mapping[str, Any]]) -> Path:
    """Keep results beside their forecast, bound to it by its hash."""
    document = from_json(read_text(path), path)
    place = results_file(path)
    kept = {"sha256": document["sha256"], "results": dict(results)}
    write_text(place, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    return place


def results_file(path: Path | str) -> Path:
    """Where the results of a forecast are kept."""
    return Path(str(path).removesuffix(ENDING).removesuffix(".json") + RESULTS)


def kept_results(path: Path | str) -> Mapping[str, Mapping[str, Any]]:
    """The results that are kept beside a forecast; none where nobody recorded any."""
    place = results_file(path)
    if not place.exists():
        return {}
    document = from_json(read_text(place), place)
    if not isinstance(document, Mapping) or not isinstance(document.get("results"), Mapping):
        raise BadFile(place, "must hold an object with `sha256` and `results`")
    if document.get("sha256") != from_json(read_text(path), path)["sha256"]:
        raise BadFile(place, f"holds results of another forecast than {path}")
    results: Mapping[str, Mapping[str, Any]] = document["results"]
    return results


def unscored(folder: Path = FOLDER) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Forecasts in a folder that have no results yet."""
    for path in sorted(folder.glob(f"*{ENDING}")):
        if not kept_results(path):
            yield path, load(path)


def refuse_unscored(file: str, rows: Iterable[Any], folder: Path = FOLDER) -> None:
    """Refuse to fit runs that a forecast was made for and is not yet scored against.

    Such runs are of one of its publishers, and later than the forecast.
    """
    waiting = list(unscored(folder)) if folder.exists() else []
    for values in rows if waiting else ():
        row = Record(values if isinstance(values, Mapping) else {})
        publisher = row.inner("normalized").text("publisher", "not stated")
        for path, content in waiting:
            if publisher in content["publishers"] and _is_later(row, str(content["written"])):
                raise BadValue(
                    f"{file}: {row.text('id', 'a run')}",
                    publisher,
                    f"it is later than {path.name} of {content['written']}, which has to be scored "
                    f"first: mofa validate forecast {path} --results {file} --record",
                )


def _is_later(row: Record, day: str) -> bool:
    """Whether a run was published after a day: by its date, or by its year where it has
    no other.
    """
    day_published = row.get("published")
    if day_published is not None:
        return row.text("published") > day
    return row.count("year", 0) > int(day[:4])


def forecast_table(content: Mapping[str, Any], outcomes: Sequence[ForecastOutcome] = ()) -> Table:
    """The jobs of a forecast, with what came of them."""
    by_job = {outcome.id: outcome for outcome in outcomes}
    return Table(
        title=f"{content['name']}, written {content['written']}",
        columns=(
            Column("job"),
            Column("step", unit="s"),
            Column("from", unit="s"),
            Column("to", unit="s"),
            Column("memory", unit="GiB"),
            Column("fits", unit="%"),
            Column("measured", unit="s"),
            Column("error", unit="%"),
        ),
        rows=tuple(
            (
                job["question"]["id"],
                job["step_s"],
                *job["step_band_s"],
                job["memory_gib"],
                job["fits"],
                None if result is None else result.measured_s,
                None if result is None else result.error,
            )
            for job in content["jobs"]
            for result in [by_job.get(job["question"]["id"])]
        ),
    )


def section(folder: Path) -> Iterator[str]:
    """The section of the page of validation: every forecast, and its score where its results
    are known.
    """
    yield ABOUT.format(share=100 * SHARE)
    rows = []
    for path in sorted(folder.glob(f"*{ENDING}")):
        content = load(path)
        outcomes = outcomes_of(content, kept_results(path))
        figures = scores(content, outcomes)
        rows.append(
            (
                content["name"],
                content["written"],
                digest(content)[:12],
                figures["jobs"],
                figures["scored"],
                figures["median_error"],
                figures["share_inside"],
                figures["chance_of_share"],
            )
        )
    if not rows:
        yield "None has been written yet."
        return
    yield as_markdown(
        Table(
            columns=(
                Column("forecast"),
                Column("written"),
                Column("SHA-256"),
                Column("jobs"),
                Column("results"),
                Column("median error", unit="%"),
                Column("in their bands", unit="%"),
                Column("chance", unit="%"),
            ),
            rows=tuple(rows),
        )
    )
