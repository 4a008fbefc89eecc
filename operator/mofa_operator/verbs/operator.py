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
from itertools import chain
from typing import Any, Final, get_type_hints

from mofa_model import output, terminal
from mofa_model.errors import BadFile, BadValue, UnknownName
from mofa_model.kinds import KINDS
from mofa_operator import settings as declared
from mofa_operator.settings import OperatorSettings

NAMED: Final = ("prometheus", "lease")
"""Groups whose name stands before each of their flags."""
FORMATS: Final = ("text", "json")
"""Forms of the log."""
_TRUTH: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_MAY_BE_ZERO: Final = ("settle", "steady", "quiet", "material", "metrics_port", "health_port")
"""Numbers that may be zero; port 0 is any free one."""
_MAY_HAVE_COMMAS: Final = ("header",)
"""Lists whose items may hold commas: in a variable they stand in lines of their own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Flag:
    """One field of the settings, as people set it."""

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

    def read(self, text: str, given: str) -> Any:
        """The value that a text means; `given` names the flag or variable in messages."""
        if self.kind is bool:
            if text.lower() not in _TRUTH:
                raise BadValue(given, text, "give true or false")
            return _TRUTH[text.lower()]
        if self.kind is tuple:
            between = "\n" if self.field.name in _MAY_HAVE_COMMAS else ","
            return tuple(word.strip() for word in text.split(between) if word.strip())
        return self._number(text, given) if self.kind in {int, float} else text

    def _number(self, text: str, given: str) -> float:
        least = "zero or more" if self.field.name in _MAY_BE_ZERO else "above zero"
        whole = "a whole number" if self.kind is int else "a number"
        try:
            value: float = self.kind(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0 or (value == 0 and least != "zero or more"):
            raise BadValue(given, text, f"give {whole} {least}")
        return value


def flags() -> list[Flag]:
    """All flags of the operator, in the order of its settings."""
    found = list(_fields(OperatorSettings, ""))
    shared = {
        name for name, count in Counter(field.name for _, field, _ in found).items() if count > 1
    }
    told = _docstrings()
    return [
        Flag(
            group=group,
            field=field,
            kind=kind,
            name="-".join(
                filter(None, (group if group in NAMED or field.name in shared else "", field.name))
            ).replace("_", "-"),
            help=told[owner_of(group), field.name],
        )
        for group, field, kind in found
    ]


def owner_of(group: str) -> str:
    """The class of a group.

    >>> owner_of("loop"), owner_of("")
    ('LoopSettings', 'OperatorSettings')
    """
    return f"{group.capitalize() or 'Operator'}Settings"


def add_flags(parser: ArgumentParser) -> None:
    """Add a flag for every field."""
    groups = {"": parser.add_argument_group("operator")}
    for flag in flags():
        group = (
            groups.setdefault(flag.group, parser.add_argument_group(flag.group))
            if flag.group
            else groups[""]
        )
        default = flag.default
        shown = (
            ""
            if default in (None, ())
            else f" (default: {','.join(default) if flag.kind is tuple else default})"
        )
        more: dict[str, Any] = {"help": f"{flag.help}{shown}".replace("%", "%%"), "default": None}
        if flag.kind is bool:
            group.add_argument(f"--{flag.name}", action=BooleanOptionalAction, **more)
        else:
            many: dict[str, Any] = {"action": "append"} if flag.kind is tuple else {}
            group.add_argument(f"--{flag.name}", metavar=_metavar(flag), **many, **more)


def settings_of(
    arguments: Namespace, environment: Mapping[str, str] = os.environ
) -> OperatorSettings:
    """The settings: a flag counts, else its variable, else the default."""
    values: dict[str, dict[str, Any]] = {}
    for flag in flags():
        given = getattr(arguments, flag.name.replace("-", "_"))
        text = environment.get(flag.variable, "")
        if given is not None:
            texts = given if flag.kind is tuple else [given]
            read = [one if flag.kind is bool else flag.read(one, f"--{flag.name}") for one in texts]
            value = tuple(chain.from_iterable(read)) if flag.kind is tuple else read[0]
        elif text:
            value = flag.read(text, flag.variable)
        else:
            continue
        values.setdefault(flag.group, {})[flag.field.name] = value
    given_at_top: dict[str, Any] = values.get("", {})
    for field, kind in _typed(OperatorSettings):
        if is_dataclass(kind):
            make: Any = kind
            given_at_top[field.name] = make(**values.get(field.name, {}))
    made = OperatorSettings(**given_at_top)
    _check(made)
    return made


def _check(made: OperatorSettings) -> None:
    from mofa_operator.observe.prometheus.flavours import Flavour

    if made.log_format not in FORMATS:
        raise UnknownName("--log-format", made.log_format, FORMATS)
    if made.prometheus.flavour not in {flavour.value for flavour in Flavour}:
        raise UnknownName(
            "--prometheus-flavour", made.prometheus.flavour, [flavour.value for flavour in Flavour]
        )
    known = [kind.setting for kind in KINDS]
    for name in made.kinds:
        if name not in known:
            raise UnknownName("--kinds", name, known)
    for name in ("metrics_port", "health_port"):
        if getattr(made.serve, name) > 65535:
            raise BadValue(
                f"--{name.replace('_', '-')}",
                getattr(made.serve, name),
                "give a port, at most 65535",
            )


def _typed(owner: Any) -> Iterator[tuple[Field[Any], Any]]:
    hints = get_type_hints(owner)
    return ((field, hints[field.name]) for field in fields(owner))


def _fields(owner: Any, group: str) -> Iterator[tuple[str, Field[Any], type]]:
    """All fields of nested settings, each with its group and the plain type of its option."""
    for field, hint in _typed(owner):
        if is_dataclass(hint):
            yield from _fields(hint, field.name)
        else:
            kinds = (tuple, bool, int, float)
            text = str(hint)
            yield (
                group,
                field,
                next((kind for kind in kinds if text.startswith((kind.__name__, str(kind)))), str),
            )


def _docstrings() -> dict[tuple[str, str], str]:
    """The docstring under each field, by class and field."""
    found = {}
    for owner in ast.parse(inspect.getsource(declared)).body:
        if isinstance(owner, ast.ClassDef):
            for field, text in zip(owner.body, owner.body[1:], strict=False):
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Name)
                    and isinstance(text, ast.Expr)
                ):
                    said = " ".join(ast.literal_eval(text.value).split())
                    found[owner.name, field.target.id] = said
    return found


def _metavar(flag: Flag) -> str:
    return {int: "N", float: "X", tuple: "A,B"}.get(flag.kind, "TEXT")


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
    settings = settings_of(arguments)
    if arguments.kubeconfig is not None:
        if not os.path.isfile(arguments.kubeconfig):  # noqa: PTH113 - pathlib is slower to import
            raise BadFile(arguments.kubeconfig, "there is no such kubeconfig")
        os.environ["KUBECONFIG"] = arguments.kubeconfig
    if arguments.print_settings:
        headers = tuple(f"{header.partition('=')[0]}=…" for header in settings.prometheus.header)
        shown = replace(settings, prometheus=replace(settings.prometheus, header=headers))
        terminal.put(output.as_json(shown))
        return 0
    from mofa_operator.control.shutdown import Shutdown

    shutdown = Shutdown()  # before the imports that take long
    from mofa_operator.control import logs
    from mofa_operator.control.run import operate

    gc.freeze()  # imports are no garbage: looking through them took a sixth of our time
    logs.set_up(settings.log_format, verbose=settings.verbose)
    return operate(settings, shutdown)
