"""What all dashboards are made of, so that each file says only what it shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from grafana_foundation_sdk.builders import common as bc
from grafana_foundation_sdk.builders import dashboard as bd
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models import common as mc
from grafana_foundation_sdk.models import dashboard as md
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

TAG: Final = "mofa"
TOKENS: Final = "suffix: tok/s"
SHARE: Final = "percentunit"
COUNT: Final = "short"
SECONDS: Final = "s"
PER_DAY: Final = "suffix: per node and day"
LOCAL: Final = 'cluster=~"$cluster"'
"""Matcher of everything; its variable's All is .*, which also matches series without the label."""
POOL: Final = f'{LOCAL}, pool=~"$pool"'
JOB: Final = f'{LOCAL}, training_namespace=~"$training_namespace", training_job=~"$training_job"'
THIS_POOL: Final = f'{LOCAL}, pool="$pool"'
THIS_JOB: Final = f'{LOCAL}, training_namespace="$training_namespace", training_job="$training_job"'
"""Matchers of one object: equality, for a name may hold a dot."""
SELF: Final = f'{LOCAL}, job=~"$job", instance=~"$instance"'
BY_JOB: Final = "cluster, training_namespace, training_job, training_kind"
NAMED: Final = "{{training_namespace}}/{{training_job}}"

SOURCE: Final = md.DataSourceRef(type_val="prometheus", uid="${datasource}")

Panel = TypeVar("Panel", timeseries.Panel, stat.Panel, table.Panel, statetimeline.Panel)


def board(
    title: str, uid: str, about: str, variables: Iterable[Any], since: str = "now-24h"
) -> bd.Dashboard:
    """An empty dashboard: read-only, tagged, with links to its siblings."""
    made = (
        bd.Dashboard(f"MoFa / {title}")
        .uid(uid)
        .description(about)
        .tags([TAG])
        .readonly()
        .tooltip(md.DashboardCursorSync.CROSSHAIR)
        .time(since, "now")
        .timezone("browser")
        .refresh("1m")
        .link(
            bd.DashboardLink("MoFa dashboards")
            .type(md.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
    )
    for variable in (
        datasource(),
        choice("cluster", "Cluster", "mofa_advisor_build_info", "cluster"),
        *variables,
    ):
        made = made.with_variable(variable)
    return made


def datasource() -> bd.DatasourceVariable:
    """The Prometheus that is asked."""
    return bd.DatasourceVariable("datasource").label("Data source").type("prometheus")


def choice(
    name: str, label: str, metric: str, of: str, *, single: bool = False
) -> bd.QueryVariable:
    """A variable whose values are those of a label; several at once, or exactly one."""
    made = (
        bd.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query({"query": f"label_values({metric}, {of})", "refId": f"values-of-{name}"})
        .refresh(md.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(md.VariableSort.ALPHABETICAL_ASC)
    )
    return made if single else made.multi(True).include_all(True).all_value(".*").current(
        md.VariableOption(text="All", value="$__all", selected=True)
    )  # fmt: skip


def query(expr: str, legend: str = "", ref: str = "A") -> prometheus.Dataquery:
    """A query over the time range."""
    return _query(expr, legend, ref).range()


def now(expr: str, legend: str = "", ref: str = "A") -> prometheus.Dataquery:
    """A query of the last moment."""
    return _query(expr, legend, ref).instant()


def _query(expr: str, legend: str, ref: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(expr).legend_format(legend).ref_id(ref).datasource(SOURCE)


def lines(
    title: str, about: str, unit: str, queries: Mapping[str, str], *, span: int = 12
) -> timeseries.Panel:
    """Lines over time; `queries` are expressions by legend."""
    made = (
        _panel(timeseries.Panel(), title, about, unit, span=span, height=8)
        .line_width(1)
        .fill_opacity(5)
        .show_points(mc.VisibilityMode.NEVER)
        .legend(_legend())
        .tooltip(
            bc.VizTooltipOptions().mode(mc.TooltipDisplayMode.MULTI).sort(mc.SortOrder.DESCENDING)
        )
    )
    for number, (legend, expr) in enumerate(queries.items()):
        made = made.with_target(query(expr, legend, chr(ord("A") + number)))
    return made


def _legend() -> bc.VizLegendOptions:
    return (
        bc.VizLegendOptions()
        .display_mode(mc.LegendDisplayMode.TABLE)
        .placement(mc.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs(["lastNotNull", "min", "max"])
    )


def band(panel: timeseries.Panel, lower: str = "lower", upper: str = "upper") -> timeseries.Panel:
    """Show two of a panel's lines as the edges of a shaded band."""
    edge = [
        {"id": "custom.lineWidth", "value": 0},
        {"id": "color", "value": {"mode": "fixed", "fixedColor": "blue"}},
    ]
    fill = [{"id": "custom.fillBelowTo", "value": lower}, {"id": "custom.fillOpacity", "value": 15}]
    panel = panel.override_by_name(
        lower, _values([*edge, {"id": "custom.fillOpacity", "value": 0}])
    )
    return panel.override_by_name(upper, _values([*edge, *fill]))


def bars(panel: timeseries.Panel, names: str) -> timeseries.Panel:
    """Show the lines whose legend matches as stacked bars."""
    style = [
        {"id": "custom.drawStyle", "value": "bars"},
        {"id": "custom.fillOpacity", "value": 70},
        {"id": "custom.stacking", "value": {"mode": "normal", "group": "bars"}},
    ]
    return panel.override_by_regexp(names, _values(style))


def other_axis(panel: timeseries.Panel, names: str, unit: str, label: str) -> timeseries.Panel:
    """Give the lines whose legend matches an axis of their own on the right."""
    axis = [
        {"id": "unit", "value": unit},
        {"id": "custom.axisPlacement", "value": "right"},
        {"id": "custom.axisLabel", "value": label},
    ]
    return panel.override_by_regexp(names, _values(axis))


def limit(panel: Panel, value: float, colour: str = "red") -> Panel:
    """Mark what lies above a value."""
    steps = [md.Threshold(color="green"), md.Threshold(value=value, color=colour)]
    panel = panel.thresholds(bd.ThresholdsConfig().mode(md.ThresholdsMode.ABSOLUTE).steps(steps))
    if isinstance(panel, timeseries.Panel):
        line = bc.GraphThresholdsStyleConfig().mode(mc.GraphThresholdsStyleMode.DASHED)
        return panel.thresholds_style(line)
    return panel


def number(title: str, about: str, unit: str, expr: str, *, span: int = 4) -> stat.Panel:
    """One number of the last moment."""
    made = _panel(stat.Panel(), title, about, unit, span=span, height=4)
    return made.with_target(now(expr)).graph_mode(mc.BigValueGraphMode.NONE).no_value("–")


def words(title: str, about: str, expr: str, legend: str, *, span: int = 8) -> stat.Panel:
    """What the labels of an info series say."""
    made = _panel(stat.Panel(), title, about, "string", span=span, height=4)
    return (
        made.with_target(now(expr, legend))
        .text_mode(mc.BigValueTextMode.NAME)
        .graph_mode(mc.BigValueGraphMode.NONE)
        .color_mode(mc.BigValueColorMode.NONE)
        .no_value("–")
    )


def rows(
    title: str,
    about: str,
    columns: Mapping[str, tuple[str, str]],
    hide: Iterable[str] = (),
    *,
    span: int = 24,
) -> table.Panel:
    """A table: expressions and units by column; rows are what their labels have in common."""
    made = _panel(table.Panel(), title, about, COUNT, span=span, height=9)
    names = {}
    for position, (column, (expr, unit)) in enumerate(columns.items()):
        ref = chr(ord("A") + position)
        names[f"Value #{ref}" if len(columns) > 1 else "Value"] = column
        made = made.with_target(now(expr, "", ref).format(PromQueryFormat.TABLE))
        made = made.override_by_name(column, _values([{"id": "unit", "value": unit}]))
    hidden = dict.fromkeys(("Time", *hide), True)
    rename = {"excludeByName": hidden, "renameByName": names, "indexByName": {}}
    return made.with_transformation(
        md.DataTransformerConfig(id_val="merge", options={})
    ).with_transformation(md.DataTransformerConfig(id_val="organize", options=rename))


def linked(panel: table.Panel, column: str, title: str, url: str) -> table.Panel:
    """Let a column's values lead to another dashboard, with the same data source and time."""
    target = {
        "title": title,
        "url": f"{url}&${{datasource:queryparam}}&${{cluster:queryparam}}&${{__url_time_range}}",
    }
    return panel.override_by_name(column, _values([{"id": "links", "value": [target]}]))


def states(
    title: str, about: str, expr: str, legend: str, *, span: int = 12
) -> statetimeline.Panel:
    """Which states held when."""
    made = _panel(statetimeline.Panel(), title, about, COUNT, span=span, height=8)
    shown = md.ValueMap(options={"1": md.ValueMappingResult(text="holds", color="blue", index=0)})
    return (
        made.with_target(query(expr, legend)).mappings([shown]).show_value(mc.VisibilityMode.NEVER)
    )


def _panel(panel: Panel, title: str, about: str, unit: str, *, span: int, height: int) -> Panel:
    return (
        panel.title(title)
        .description(about)
        .unit(unit)
        .datasource(SOURCE)
        .span(span)
        .height(height)
    )


def _values(given: list[dict[str, Any]]) -> list[md.DynamicConfigValue]:
    return [md.DynamicConfigValue(id_val=value["id"], value=value["value"]) for value in given]
