"""Run the operator: watch a cluster, advise its training jobs, and write the advice down."""

from __future__ import annotations

import ast
import gc
import inspect
import math
import os
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from typing import Any, Final, get_type_hints

from mofa_model import output, terminal
from mofa_model.errors import BadValue, UnknownName
from mofa_model.kinds import KINDS
from mofa_operator import settings as declared
from mofa_operator.settings import OperatorSettings

NAMED: Final = ("prometheus", "lease")
"""Groups whose name begins each of their flags."""
FORMATS: Final = ("text", "json")
"""Forms of the log."""
_TRUTH: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_METAVARS: Final[dict[type, str]] = {int: "N", float: "X", tuple: "A,B"}
_MAY_BE_ZERO: Final = ("settle", "steady", "quiet", "material", "metrics_port", "health_port")
"""Numbers that may be zero; port 0 is any free one."""
_MAY_HAVE_COMMAS: Final = ("header",)
"""Lists whose items may hold commas: in a variable they stand in lines of their own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Flag:
    """A field of the settings, as a flag and an environment variable."""

    group: str
    """Its group; empty at the top."""
    field: Field[Any]
    """The field."""
    kind: type
    """str, int, float, bool or tuple."""
    name: str
    """The flag without its dashes."""
    help: str
    """What it means."""

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return "MOFA_" + self.name.replace("-", "_").upper()

    @property
    def default(self) -> Any:
        """The value without flag or variable; None where there is none."""
        return self.field.default if self.field.default is not MISSING else None

    def read(self, text: str, source: str) -> Any:
        """The value of a text; `source` names the flag or variable in messages."""
        if self.kind is bool:
            if text.lower() not in _TRUTH:
                raise BadValue(source, text, "give true or false")
            return _TRUTH[text.lower()]
        if self.kind is tuple:
            separator = "\n" if self.field.name in _MAY_HAVE_COMMAS else ","
            return tuple(word.strip() for word in text.split(separator) if word.strip())
        return self._number(text, source) if self.kind in {int, float} else text

    def _number(self, text: str, source: str) -> float:
        least = "zero or more" if self.field.name in _MAY_BE_ZERO else "above zero"
        whole = "a whole number" if self.kind is int else "a number"
        try:
            value: float = self.kind(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0 or (value == 0 and least != "zero or more"):
            raise BadValue(source, text, f"give {whole} {least}")
        return value


def flags() -> list[Flag]:
    """All flags of the operator, in the order of its settings."""
    fields_by_group = list(_fields(OperatorSettings, ""))
    counts = Counter(field.name for _, field, _ in fields_by_group)
    docstrings = _docstrings()
    return [
        Flag(
            group=group,
            field=field,
            kind=kind,
            name=(
                f"{group}-{field.name}"
                if group in NAMED or (group and counts[field.name] > 1)
                else field.name
            ).replace("_", "-"),
            help=docstrings[owner_of(group), field.name],
        )
        for group, field, kind in fields_by_group
    ]


def owner_of(group: str) -> str:
    """The name of the class of a group.

    >>> owner_of("loop"), owner_of("")
    ('LoopSettings', 'OperatorSettings')
    """
    return f"{group.capitalize() or 'Operator'}Settings"


def add_flags(parser: ArgumentParser) -> None:
    """Add a flag for every field."""
    groups = {"": parser.add_argument_group("operator")}
    for flag in flags():
        if flag.group not in groups:
            groups[flag.group] = parser.add_argument_group(flag.group)
        group = groups[flag.group]
        text = flag.help
        if flag.default not in (None, ()):
            default = ",".join(flag.default) if flag.kind is tuple else flag.default
            text += f" (default: {default})"
        options: dict[str, Any] = {"help": text.replace("%", "%%"), "default": None}
        if flag.kind is bool:
            options["action"] = BooleanOptionalAction
        else:
            options["metavar"] = _METAVARS.get(flag.kind, "TEXT")
        if flag.kind is tuple:
            options["action"] = "append"
        group.add_argument(f"--{flag.name}", **options)


def settings_of(
    arguments: Namespace, environment: Mapping[str, str] = os.environ
) -> OperatorSettings:
    """The settings: of each the flag, else its variable, else the default."""
    values: dict[str, dict[str, Any]] = {}
    for flag in flags():
        argument = getattr(arguments, flag.name.replace("-", "_"))
        text, name = environment.get(flag.variable, ""), f"--{flag.name}"
        if argument is not None and flag.kind is tuple:
            value = tuple(word for part in argument for word in flag.read(part, name))
        elif argument is not None:
            value = argument if flag.kind is bool else flag.read(argument, name)
        elif text:
            value = flag.read(text, flag.variable)
        else:
            continue
        values.setdefault(flag.group, {})[flag.field.name] = value
    options: dict[str, Any] = values.get("", {})
    for field, kind in _typed(OperatorSettings):
        if is_dataclass(kind):
            make: Any = kind
            options[field.name] = make(**values.get(field.name, {}))
    settings = OperatorSettings(**options)
    _check(settings)
    return settings


def _check(settings: OperatorSettings) -> None:
    """Raise where a setting's value is none of those that exist."""
    from mofa_operator.observe.prometheus.flavours import Flavour

    choices = (
        ("--log-format", (settings.log_format,), FORMATS),
        ("--prometheus-flavour", (settings.prometheus.flavour,), [item.value for item in Flavour]),
        ("--kinds", settings.kinds, [kind.setting for kind in KINDS]),
    )
    for flag, names, known in choices:
        for name in names:
            if name not in known:
                raise UnknownName(flag, name, known)
    ports = (
        ("--metrics-port", settings.serve.metrics_port),
        ("--health-port", settings.serve.health_port),
    )
    for flag, port in ports:
        if port > 65535:
            raise BadValue(flag, port, "give a port, at most 65535")


def _typed(owner: Any) -> Iterator[tuple[Field[Any], Any]]:
    hints = get_type_hints(owner)
    return ((field, hints[field.name]) for field in fields(owner))


def _fields(owner: Any, group: str) -> Iterator[tuple[str, Field[Any], type]]:
    """All fields of nested settings, each with its group and the plain type of its option."""
    for field, hint in _typed(owner):
        if is_dataclass(hint):
            yield from _fields(hint, field.name)
        else:
            text, kinds = str(hint), (tuple, bool, int, float)
            matches = (kind for kind in kinds if text.startswith((kind.__name__, str(kind))))
            yield group, field, next(matches, str)


def _docstrings() -> dict[tuple[str, str], str]:
    """The docstring under each field, by class and field."""
    docstrings = {}
    for owner in ast.parse(inspect.getsource(declared)).body:
        if isinstance(owner, ast.ClassDef):
            for field, text in zip(owner.body, owner.body[1:], strict=False):
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Name)
                    and isinstance(text, ast.Expr)
                ):
                    sentence = " ".join(ast.literal_eval(text.value).split())
                    docstrings[owner.name, field.target.id] = sentence
    return docstrings


EXAMPLES: Final = """\
Every flag has an environment variable: --prometheus-url is MOFA_PROMETHEUS_URL. A flag counts more.

examples:
  against the cluster of the current kubeconfig, writing nothing
    mofa operator --dry-run --verbose
  with failure history, in two namespaces
    mofa operator --prometheus-url http://prometheus:9090 --namespace team-a,team-b

exit codes: 0 stopped by a signal, 1 something failed, 2 bad settings,
4 the API server does not answer"""


def configure(parser: ArgumentParser) -> None:
    """Add one option for each setting of the operator."""
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="kubeconfig (default: KUBECONFIG, else the pod's account)",
    )
    parser.add_argument(
        "--print-settings",
        action="store_true",
        help="print the settings that would be used, and exit",
    )
    add_flags(parser)


def run(arguments: Namespace) -> int:
    """Run until a signal comes."""
    from mofa_operator.verbs.cluster_options import use_kubeconfig

    settings = settings_of(arguments)
    use_kubeconfig(arguments.kubeconfig)
    if arguments.print_settings:
        headers = tuple(f"{header.partition('=')[0]}=…" for header in settings.prometheus.header)
        shown = replace(settings, prometheus=replace(settings.prometheus, header=headers))
        terminal.put(output.as_json(shown))
        return 0
    from mofa_operator.control.shutdown import Shutdown

    shutdown = Shutdown()  # which takes signals, before the slow imports
    from mofa_operator.control import logs
    from mofa_operator.control.run import operate

    gc.freeze()  # modules are no garbage, and reading them took a sixth of our time
    logs.set_up(settings.log_format, verbose=settings.verbose)
    return operate(settings, shutdown)
