"""A launch written into the script that people have: what differs is changed where it stands.

    changed_script(text, launch, follow)    ScriptChanged: the script, each change with its line,
    what is left

A value is changed where the script gives it: in the variable, the array or the option itself. After
each change the script is followed again, and the change is kept only if the trainer is told what
the launch says and every other word of every command is as before. So a variable that also names a
folder is left alone, and the option itself is written out. Doing it twice is doing it once.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from mofa_model.errors import InputError, shown
from mofa_model.launch.answer import Launch
from mofa_model.launch.edits import (
    Edit,
    ScriptChange,
    ScriptChanged,
    TracedWord,
    applied,
    over,
)
from mofa_model.launch.over_file import KEYS, file_of
from mofa_model.launch.rewrite import KEPT_BY_THEMSELVES, argument_of, values_of
from mofa_model.launch.table import table

_TRIED: Final = 12
"""Places for a new option that are tried. [1]"""
_GAP: Final = r"(?:[ \t]|\\\n)*"
_TOKEN: Final = re.compile(
    r"""(?:"[^"\n]*"|'[^'\n]*'|\$\{[^}\n]*\}|\$\(\([^\n]*?\)\)|\$\([^)\n]*\)|[^\s"'\\)`;&|])+"""
)
"""A word as it stands in a script, whatever quotes are around it."""
_WORD: Final = "activation-checkpoint"
"""An option of torchtitan that is one word, its value behind a colon."""
_OF_FSDP: Final = {"ckpt-format": ("fsdp_dtensor",)}
"""Values that only another layout has."""
_UNSAID: Final = {
    ("megatron", f"{axis}-parallel-size"): ("1",)
    for axis in ("tensor-model", "pipeline-model", "context", "expert-model")
}
"""What a trainer does where nothing is said: it need not be added."""
_OF_FORK: Final = "--deepspeed"
"""An option that Megatron-DeepSpeed has, and Megatron has not."""
_SWITCHED_ON: Final = frozenset({"true", "1", "yes"})


class TracedCall(Protocol):
    """A command with such words."""

    @property
    def traced_words(self) -> Sequence[TracedWord]:
        """The words of the command, as the shell hands them over."""

    @property
    def place(self) -> int:
        """Position in the script at which the command begins."""


class ScriptRead(Protocol):
    """A script as it was followed: its commands, and its variables at the end."""

    @property
    def followed(self) -> Sequence[TracedCall]:
        """The commands of the script, in order."""

    @property
    def holds(self) -> Mapping[str, object]:
        """Variables of the script, by name."""


Follow = Callable[[str], ScriptRead]
"""What follows a script's text."""


class _Option(NamedTuple):
    """An option of a command: where its words are."""

    name: str
    """Today's name."""
    at: int
    """Place of its first word in the command."""
    values: tuple[str, ...]
    apart: int
    """Words of its values that stand apart from it. [1]"""

    @property
    def said(self) -> str:
        return " ".join(self.values) or "on"


def changed_script(text: str, launch: Launch, follow: Follow) -> ScriptChanged:
    """A script that starts a launch, with nothing else changed.

    `follow` says what a script would run, with the place of every character.
    """
    editor = _Editor(text, launch, follow)
    return editor.changed()


def has_options(words: Sequence[str], trainer: str) -> int:
    """How many of a trainer's options a command has. [1]"""
    return len(_options(words, trainer))


def _options(words: Sequence[str], trainer: str) -> list[_Option]:
    """The options of a trainer among the words of a command, each by its name of today."""
    found, at = list[_Option](), 0
    while at < len(words):
        name = argument_of(words[at], trainer)
        if not name:
            at += 1
            continue
        _, equals, inline = words[at].partition("=")
        today, fixed = table(trainer).today(name, None)
        most = 0 if equals else values_of(name, trainer)
        count = 0
        while (
            count < most
            and at + 1 + count < len(words)
            and not words[at + 1 + count].startswith("--")
        ):
            count += 1
        values = (inline,) if equals else tuple(words[at + 1 : at + 1 + count])
        if name == _WORD and ":" in words[at]:
            values = (words[at].partition(":")[2],)
        if table(trainer).kinds.get(today) == "flag" and not equals and not count:
            following = words[at + 1 : at + 2]
            if following and following[0].lower() in {*_SWITCHED_ON, "false", "0", "no"}:
                count, values = 1, (following[0],)
        if fixed is not None:
            values = (fixed,)
        if today in table(trainer).kinds:
            found.append(_Option(today, at, _plain(values), count))
        at += 1 + count
    return found


def _plain(values: tuple[str, ...]) -> tuple[str, ...]:
    """Values of an option, without those that say no more than the bare option."""
    return () if len(values) == 1 and values[0].lower() in _SWITCHED_ON - {"1"} else values


class _Editor:
    def __init__(self, text: str, launch: Launch, follow: Follow) -> None:
        self._text, self._launch, self._follow = text, launch, follow
        self._trainer = launch.trainer
        self._wanted = {one.name: one for one in _options(launch.arguments, self._trainer)}
        self._words = {
            name: list(launch.arguments[one.at : one.at + 1 + one.apart])
            for name, one in self._wanted.items()
        }
        self._reads: dict[str, ScriptRead] = {}
        self._changes: list[ScriptChange] = []
        self._left: list[str] = []

    def _read(self, text: str) -> ScriptRead:
        """A script as it is followed; the last few are kept."""
        if text not in self._reads:
            if len(self._reads) > 4:
                self._reads = (
                    {self._text: self._reads[self._text]} if self._text in self._reads else {}
                )
            self._reads[text] = self._follow(text)
        return self._reads[text]

    def changed(self) -> ScriptChanged:
        """The script with all changes that could be made."""
        at = self._target(self._read(self._text))
        if at is None:
            return ScriptChanged(
                text=self._text,
                left=(
                    f"no command in it is told options of {self._trainer}, so it is not changed",
                ),
            )
        self._at = at
        if self._trainer == "megatron" and any(
            one.text == _OF_FORK for one in self._call().traced_words
        ):
            said = f"{_OF_FORK} is told to a fork of Megatron, whose options are others"
            left = f"{said}: write into it by hand what the launch says"
            return ScriptChanged(text=self._text, left=(left,))
        for name, value in self._launch.environment.items():
            self._variable(name, value)
        gone = [one for one in self._today() if one.name not in self._wanted]
        for one in gone:
            if one.name not in KEPT_BY_THEMSELVES or one.values == _OF_FSDP.get(one.name):
                self._remove(one.name)
        for name in self._wanted:
            self._write(name)
        return ScriptChanged(text=self._text, changes=tuple(self._changes), left=tuple(self._left))

    def _target(self, read: ScriptRead) -> int | None:
        """The command that trains: the first of those with the most of its options."""
        counts = [
            has_options([w.text for w in one.traced_words], self._trainer) for one in read.followed
        ]
        most = max(counts, default=0)
        if not most and self._trainer in KEYS:  # its file says all
            calls = ([w.text for w in one.traced_words] for one in read.followed)
            return next(
                (at for at, words in enumerate(calls) if _starts(words, self._trainer)), None
            )
        return counts.index(most) if most else None

    def _call(self) -> TracedCall:
        return self._read(self._text).followed[self._at]

    def _today(self) -> list[_Option]:
        return _options([one.text for one in self._call().traced_words], self._trainer)

    # --- one change ---------------------------------------------------------------------------

    def _variable(self, name: str, value: str) -> None:
        read = self._read(self._text)
        held = _held(read, name)
        if held is not None and held.text == value:
            return
        place = read.followed[self._at].place
        if held is not None and held.whole:
            edits = [over(held, value)]
        elif place >= 0:
            start = self._text.rfind("\n", 0, place) + 1
            while (
                start > 1 and self._text[start - 2] == "\\"
            ):  # the line goes on from the one before
                start = self._text.rfind("\n", 0, start - 1) + 1
            indent = re.match(r"[ \t]*", self._text[start:])
            blanks = indent[0] if indent else ""
            edits = [Edit(start, start, f"{blanks}export {name}={shlex.quote(value)}\n")]
        else:
            edits = []
        for one in edits:
            made = applied(self._text, [one])
            after = self._try_follow(made)
            now = None if after is None else _held(after, name)
            if after is None or now is None or now.text != value or _texts(after) != _texts(read):
                continue
            self._keep(made, one, name, held.text if held is not None else "", value)
            return
        self._left.append(f"{name}={value} has to be in the environment; no place for it was found")

    def _remove(self, name: str) -> None:
        """Take an option out of the script wherever it is given, or note that it could not
        be found.
        """
        for _ in range(8):  # however often it is given
            said = next((one for one in self._today() if one.name == name), None)
            if said is None:
                return
            words = self._call().traced_words
            span = self._span(words, said)
            if span is None or not self._accept(_without(self._text, *span), name, said.said, ""):
                self._left.append(
                    f"{_shown(words[said.at].text)} has to go; it was not found in one piece"
                )
                return

    def _write(self, name: str) -> None:
        """Give one option the wanted value in the script, or note that it could not be changed."""
        wanted = self._wanted[name]
        words = self._call().traced_words
        same = [one for one in self._today() if one.name == name]
        if not same:
            if wanted.values != _UNSAID.get((self._trainer, name)):
                self._add(name)
            return
        said = same[-1]
        if said.values == wanted.values or set(said.values) == set(wanted.values) != set():
            return
        for edit in self._replacements(words, said, wanted):
            if self._accept(edit, name, said.said, wanted.said):
                return
        self._left.append(
            f"{_shown(words[said.at].text)} has to be {_shown(wanted.said)}; it was not found in one piece"
        )

    def _replacements(
        self, words: Sequence[TracedWord], said: _Option, wanted: _Option
    ) -> Iterator[Edit]:
        """Ways to change a value: where it is given, then at the option itself."""
        new = self._words[wanted.name]
        values = new[1:] or ([new[0].partition("=")[2]] if "=" in new[0] else [])
        old = words[said.at]
        if said.apart == 1 and len(values) == 1 and words[said.at + 1].whole:
            yield over(words[said.at + 1], values[0])
        if not said.apart and "=" in old.text and len(values) == 1:
            begin = old.text.index("=") + 1
            part = old.slice(begin)
            if part.whole:
                yield over(part, values[0])
        if said.name == _WORD and "=" not in old.text and old.whole:
            yield over(old, new[0])
            return
        span = self._span(words, said)
        if span is None:
            return
        start, end, first = span
        for form in dict.fromkeys((shlex.join(values), " ".join(values))):  # the second in a string
            if not values:
                yield Edit(start, end, new[0])
            elif first == end:
                yield Edit(end, end, f" {form}")
            else:
                yield Edit(first, end, form)

    def _spelled(self, words: list[str]) -> list[str]:
        """A new option with the hyphens or underscores of those that are there."""
        there = [
            one.text[2:].partition("=")[0]
            for one in self._call().traced_words
            if one.text[:2] == "--"
        ]
        underscores = any("_" in one for one in there) and not any("-" in one for one in there)
        if self._trainer != "megatron" or not underscores:
            return words
        return [words[0].replace("-", "_").replace("__", "--", 1), *words[1:]]

    def _add(self, name: str) -> None:
        words = self._spelled(self._words[name])
        forms = dict.fromkeys((shlex.join(words), " ".join(words)))
        for edit in (edit for new in forms for edit in self._places(new)):
            if self._accept(edit, name, "", " ".join(self._wanted[name].values)):
                return
        self._left.append(f"{_shown(' '.join(words))} has to be added; no place for it was found")

    def _places(self, new: str) -> Iterator[Edit]:
        """Where a new option can stand: behind another one, on a line of its own where those
        have one.
        """
        words, options = self._call().traced_words, self._today()
        ends = list[int]()
        for one in reversed(options):
            span = self._span(words, one)
            if span is not None and span[1] not in ends:
                ends.append(span[1])
        ends += [one.at[-1] + 1 for one in reversed(words) if one.text and one.whole]
        if self._trainer in KEYS:
            ends.insert(0, self._end_of(words))
        for end in list(dict.fromkeys(ends))[:_TRIED]:
            yield from self._behind(end, new)

    def _end_of(self, words: Sequence[TracedWord]) -> int:
        """Where a command ends whose last words are variables, each of which is one word of
        its text.
        """
        begins = self._call().place
        there = [one.text and one.whole and one.at[-1] > begins for one in words]
        last = max((at for at, stands in enumerate(there) if stands), default=-1)
        end = words[last].at[-1] + 1 if last >= 0 else 0
        for _ in words[last + 1 :]:
            gap = re.compile(_GAP).match(self._text, end)
            token = _TOKEN.match(self._text, gap.end() if gap else end)
            end = token.end() if token else end
        return end

    def _behind(self, end: int, new: str) -> Iterator[Edit]:
        """Edits that put a new option behind a place: on a line of its own, or on the same line."""
        text = self._text
        start, stop = text.rfind("\n", 0, end) + 1, text.find("\n", end)
        stop = len(text) if stop < 0 else stop
        line, rest = text[start:end], text[end:stop]
        option = re.match(r"([ \t]*)-", line)
        if option and re.fullmatch(r"[ \t]*\\", rest):
            yield Edit(stop, stop, f"\n{option[1]}{new}{rest}")
        elif option and re.fullmatch(r"[ \t]*(#.*)?", rest):
            before = text[: max(0, start - 1)].rpartition("\n")[2]
            if before.endswith("\\"):  # the last line of a command
                yield Edit(end, end, f" \\\n{option[1]}{new}")
            else:
                yield Edit(stop, stop, f"\n{option[1]}{new}")
        yield Edit(end, end, f" {new}")

    # --- what a change does -------------------------------------------------------------------

    def _accept(self, edit: Edit, name: str, before: str, after: str) -> bool:
        """Make a change if it changes this option and nothing else. A comment is never changed, so
        neither is a directive.
        """
        line = self._text[self._text.rfind("\n", 0, edit.start) + 1 : edit.start]
        if line.lstrip().startswith("#"):
            return False
        made = applied(self._text, [edit])
        old, new = self._try_follow(self._text), self._try_follow(made)
        if old is None or new is None or made == self._text or not self._only(old, new, name):
            return False
        self._keep(made, edit, name, before, after)
        return True

    def _keep(self, made: str, edit: Edit, name: str, before: str, after: str) -> None:
        shown_name = self._words[name][0].partition("=")[0] if name in self._words else name
        change = ScriptChange(edit.line_number(self._text), shown_name, before, after)
        self._changes.append(change)
        self._text = made

    def _try_follow(self, text: str) -> ScriptRead | None:
        try:
            return self._read(text)
        except InputError:
            return None

    def _only(self, old: ScriptRead, new: ScriptRead, name: str) -> bool:
        """Whether one option is as the launch says, and all other words of all commands are
        as before.
        """
        if len(old.followed) != len(new.followed):
            return False
        for at, (one, other) in enumerate(zip(old.followed, new.followed, strict=True)):
            before = [word.text for word in one.traced_words]
            after = [word.text for word in other.traced_words]
            if before == after and at != self._at:
                continue
            if self._others(before, name) != self._others(after, name):
                return False
            found = [option for option in _options(after, self._trainer) if option.name == name]
            wanted = self._wanted.get(name)
            if (
                at == self._at
                and wanted is None
                and len(found)
                >= len(
                    [option for option in _options(before, self._trainer) if option.name == name]
                )
            ):
                return False
            if at == self._at and found and not _stands(after, found[-1].at, self._trainer):
                return False
            if wanted is not None and (not found or set(found[-1].values) != set(wanted.values)):
                return False
        return True

    def _others(self, words: Sequence[str], name: str) -> list[str]:
        """The words of a command without one option."""
        gone = {
            at
            for one in _options(words, self._trainer)
            if one.name == name
            for at in range(one.at, one.at + 1 + one.apart)
        }
        return [word for at, word in enumerate(words) if at not in gone]

    def _span(self, words: Sequence[TracedWord], said: _Option) -> tuple[int, int, int] | None:
        """Where an option stands in the text: its begin, its end, and where its value begins."""
        name = words[said.at]
        size = name.text.index("=") + 1 if "=" in name.text and not said.apart else len(name.text)
        part = name.slice(0, size)
        if not part.whole or self._text[part.at[0] : part.at[-1] + 1] != part.text:
            return None
        start, end = part.at[0], part.at[-1] + 1
        first = end
        for number in range(said.apart or (1 if part.text.endswith("=") else 0)):
            found = re.compile(_GAP).match(self._text, end)
            token = _TOKEN.match(self._text, found.end() if found else end)
            if token is None:
                return None
            first = token.start() if not number else first
            end = token.end()
        return start, end, first


def _starts(words: Sequence[str], trainer: str) -> bool:
    """Whether a command starts a trainer that reads a file."""
    from mofa_model.launch import llama_factory, torchtune

    is_factory = trainer == llama_factory.TRAINER
    return llama_factory.matches(words) if is_factory else torchtune.matches(words)


def _stands(words: Sequence[str], at: int, trainer: str) -> bool:
    """Whether a word over a file stands behind it, where the trainer reads it."""
    if trainer not in KEYS or words[at].startswith("--"):
        return True
    file = file_of(words)
    return file is not None and at > file


def _texts(read: ScriptRead) -> list[list[str]]:
    return [[word.text for word in one.traced_words] for one in read.followed]


def _held(read: ScriptRead, name: str) -> TracedWord | None:
    """What a variable holds; None where it is not set, or is an array."""
    held: Any = read.holds.get(name)
    return None if isinstance(held, list) else held


def _without(text: str, start: int, end: int, _first: int) -> Edit:
    """An edit that removes an option, and its line where nothing else is on it."""
    left, right = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    right = len(text) if right < 0 else right
    alone = not text[left:start].strip()
    if alone and re.fullmatch(r"[ \t]*\\?", text[end:right]):
        if text[end:right].rstrip().endswith("\\"):
            return Edit(left, right + 1, "")
        before = re.search(r"[ \t]*\\\n\Z", text[:left])
        if before:  # the line before ends the command now
            return Edit(before.start(), right, "")
        return Edit(left, min(right + 1, len(text)), "")
    while start > 0 and text[start - 1] in " \t":
        start -= 1
    return Edit(start, end, "")


def _shown(word: str) -> str:
    return shown(word)
