"""A launch written into the script that people have: what differs is changed where it stands.

    changed_script(text, launch, follow)    ChangedScript: the script, each change with its line,
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
    ChangedScript,
    Edit,
    ScriptChange,
    TracedWord,
    applied,
    word_edit,
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
_DEFAULTS: Final = {
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


class FollowedScript(Protocol):
    """A script as it was followed: its commands, and its variables at the end."""

    @property
    def followed(self) -> Sequence[TracedCall]:
        """The commands of the script, in order."""

    @property
    def holds(self) -> Mapping[str, object]:
        """Variables of the script, by name."""


Follow = Callable[[str], FollowedScript]
"""What follows a script's text."""


class _Option(NamedTuple):
    """An option of a command: where its words are."""

    name: str
    """Today's name."""
    position: int
    """Which word of the command names it."""
    values: tuple[str, ...]
    separate_words: int
    """How many further words its values take; 0 where they stand behind its `=`. [1]"""

    @property
    def end(self) -> int:
        """The word after its last."""
        return self.position + 1 + self.separate_words

    @property
    def value_text(self) -> str:
        return " ".join(self.values) or "on"


def changed_script(text: str, launch: Launch, follow: Follow) -> ChangedScript:
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
    options, index = list[_Option](), 0
    while index < len(words):
        name = argument_of(words[index], trainer)
        if not name:
            index += 1
            continue
        _, equals, inline = words[index].partition("=")
        today, fixed = table(trainer).today(name, None)
        most = 0 if equals else values_of(name, trainer)
        count = 0
        while (
            count < most
            and index + 1 + count < len(words)
            and not words[index + 1 + count].startswith("--")
        ):
            count += 1
        values = (inline,) if equals else tuple(words[index + 1 : index + 1 + count])
        if name == _WORD and ":" in words[index]:
            values = (words[index].partition(":")[2],)
        if table(trainer).kinds.get(today) == "flag" and not equals and not count:
            following = words[index + 1 : index + 2]
            if following and following[0].lower() in {*_SWITCHED_ON, "false", "0", "no"}:
                count, values = 1, (following[0],)
        if fixed is not None:
            values = (fixed,)
        if today in table(trainer).kinds:
            options.append(_Option(today, index, _plain(values), count))
        index += 1 + count
    return options


def _plain(values: tuple[str, ...]) -> tuple[str, ...]:
    """Values of an option, without those that say no more than the bare option."""
    return () if len(values) == 1 and values[0].lower() in _SWITCHED_ON - {"1"} else values


class _Editor:
    """Changes a script one option at a time; it keeps a change that does this and nothing else."""

    def __init__(self, text: str, launch: Launch, follow: Follow) -> None:
        self._text, self._launch, self._follow = text, launch, follow
        self._trainer = launch.trainer
        self._options = {
            option.name: option for option in _options(launch.arguments, self._trainer)
        }
        self._option_words = {
            name: list(launch.arguments[option.position : option.end])
            for name, option in self._options.items()
        }
        self._reads: dict[str, FollowedScript] = {}
        self._changes: list[ScriptChange] = []
        self._unwritten: list[str] = []

    def _read(self, text: str) -> FollowedScript:
        """What a text runs when it is followed; the last few texts are remembered."""
        if text not in self._reads:
            if len(self._reads) > 4:
                self._reads = (
                    {self._text: self._reads[self._text]} if self._text in self._reads else {}
                )
            self._reads[text] = self._follow(text)
        return self._reads[text]

    def changed(self) -> ChangedScript:
        """The script with all changes that could be made."""
        target = self._target(self._read(self._text))
        if target is None:
            note = f"no command in it is told options of {self._trainer}, so it is not changed"
            return ChangedScript(text=self._text, left=(note,))
        self._target_index = target
        if self._trainer == "megatron" and _OF_FORK in _texts(self._call()):
            note = (
                f"{_OF_FORK} is told to a fork of Megatron, whose options are others: "
                "write into it by hand what the launch says"
            )
            return ChangedScript(text=self._text, left=(note,))
        for name, value in self._launch.environment.items():
            self._variable(name, value)
        for option in self._current_options():
            if option.name in self._options:
                continue
            if option.name not in KEPT_BY_THEMSELVES or option.values == _OF_FSDP.get(option.name):
                self._remove(option.name)
        for name in self._options:
            self._write(name)
        return ChangedScript(
            text=self._text, changes=tuple(self._changes), left=tuple(self._unwritten)
        )

    def _target(self, read: FollowedScript) -> int | None:
        """The command that trains: the first of those with the most of its options."""
        calls = [_texts(call) for call in read.followed]
        counts = [has_options(words, self._trainer) for words in calls]
        if not any(counts) and self._trainer in KEYS:  # its file says all
            counts = [int(_starts(words, self._trainer)) for words in calls]
        return counts.index(max(counts)) if any(counts) else None

    def _call(self) -> TracedCall:
        return self._read(self._text).followed[self._target_index]

    def _current_options(self) -> list[_Option]:
        return _options(_texts(self._call()), self._trainer)

    # --- one change ---------------------------------------------------------------------------

    def _variable(self, name: str, value: str) -> None:
        read = self._read(self._text)
        value_word = _value_of(read, name)
        if value_word is not None and value_word.text == value:
            return
        place = read.followed[self._target_index].place
        if value_word is not None and value_word.whole:
            edit = word_edit(value_word, value)
        elif place >= 0:
            start = self._text.rfind("\n", 0, place) + 1
            # A line after a backslash is the rest of the line before it.
            while start > 1 and self._text[start - 2] == "\\":
                start = self._text.rfind("\n", 0, start - 1) + 1
            line = self._text[start:]
            indent = line[: len(line) - len(line.lstrip(" \t"))]
            edit = Edit(start, start, f"{indent}export {name}={shlex.quote(value)}\n")
        else:
            edit = None
        if edit is not None and self._sets(edit, read, name, value):
            before = value_word.text if value_word is not None else ""
            self._keep(applied(self._text, [edit]), edit, name, before, value)
        else:
            self._unwritten.append(
                f"{name}={value} has to be in the environment; no place for it was found"
            )

    def _sets(self, edit: Edit, before: FollowedScript, name: str, value: str) -> bool:
        """Whether a change gives a variable its value, and no command another word."""
        after = self._try_follow(applied(self._text, [edit]))
        if after is None or [*map(_texts, after.followed)] != [*map(_texts, before.followed)]:
            return False
        assigned = _value_of(after, name)
        return assigned is not None and assigned.text == value

    def _remove(self, name: str) -> None:
        """Take an option out of the script wherever it is given, or note that it could not
        be found.
        """
        for _ in range(8):  # however often it is given
            words = self._call().traced_words
            option = next(iter(self._named(_texts(self._call()), name)), None)
            if option is None:
                return
            span = self._span(words, option)
            edit = None if span is None else _without(self._text, *span)
            if edit is None or not self._accept(edit, name, option.value_text, ""):
                self._unwritten.append(
                    f"{shown(words[option.position].text)} has to go; it was not found in one piece"
                )
                return

    def _write(self, name: str) -> None:
        """Give one option the wanted value in the script, or note that it could not be changed."""
        new = self._options[name]
        words = self._call().traced_words
        same = self._named(_texts(self._call()), name)
        if not same:
            if new.values != _DEFAULTS.get((self._trainer, name)):
                self._add(name)
            return
        current = same[-1]
        if current.values == new.values or set(current.values) == set(new.values) != set():
            return
        for edit in self._replacements(words, current, new):
            if self._accept(edit, name, current.value_text, new.value_text):
                return
        self._unwritten.append(
            f"{shown(words[current.position].text)} has to be {shown(new.value_text)}; "
            "it was not found in one piece"
        )

    def _replacements(
        self, words: Sequence[TracedWord], current: _Option, new: _Option
    ) -> Iterator[Edit]:
        """Ways to change a value: where it is given, then at the option itself."""
        option_words = self._option_words[new.name]
        values = option_words[1:] or (
            [option_words[0].partition("=")[2]] if "=" in option_words[0] else []
        )
        old = words[current.position]
        if current.separate_words == 1 and len(values) == 1 and words[current.position + 1].whole:
            yield word_edit(words[current.position + 1], values[0])
        if not current.separate_words and "=" in old.text and len(values) == 1:
            begin = old.text.index("=") + 1
            part = old.slice(begin)
            if part.whole:
                yield word_edit(part, values[0])
        if current.name == _WORD and "=" not in old.text and old.whole:
            yield word_edit(old, option_words[0])
            return
        span = self._span(words, current)
        if span is None:
            return
        start, end, first = span
        for form in dict.fromkeys((shlex.join(values), " ".join(values))):  # the second in a string
            if not values:
                yield Edit(start, end, option_words[0])
            elif first == end:
                yield Edit(end, end, f" {form}")
            else:
                yield Edit(first, end, form)

    def _spelled(self, words: list[str]) -> list[str]:
        """A new option with the hyphens or underscores of those that are there."""
        names = [
            word.text[2:].partition("=")[0]
            for word in self._call().traced_words
            if word.text[:2] == "--"
        ]
        underscores = any("_" in name for name in names) and not any("-" in name for name in names)
        if self._trainer != "megatron" or not underscores:
            return words
        return [words[0].replace("-", "_").replace("__", "--", 1), *words[1:]]

    def _add(self, name: str) -> None:
        words = self._spelled(self._option_words[name])
        forms = dict.fromkeys((shlex.join(words), " ".join(words)))
        for edit in (edit for new in forms for edit in self._places(new)):
            if self._accept(edit, name, "", " ".join(self._options[name].values)):
                return
        self._unwritten.append(
            f"{shown(' '.join(words))} has to be added; no place for it was found"
        )

    def _places(self, new: str) -> Iterator[Edit]:
        """Where a new option can stand: behind another one, on a line of its own where those
        have one.
        """
        words, options = self._call().traced_words, self._current_options()
        ends = list[int]()
        for option in reversed(options):
            span = self._span(words, option)
            if span is not None and span[1] not in ends:
                ends.append(span[1])
        ends += [word.at[-1] + 1 for word in reversed(words) if word.text and word.whole]
        if self._trainer in KEYS:
            ends.insert(0, self._end_of(words))
        for end in list(dict.fromkeys(ends))[:_TRIED]:
            yield from self._edits_after(end, new)

    def _end_of(self, words: Sequence[TracedWord]) -> int:
        """Where a command ends whose last words are variables, each of which is one word of
        its text.
        """
        begins = self._call().place
        literal = [word.text and word.whole and word.at[-1] > begins for word in words]
        last = max((index for index, stands in enumerate(literal) if stands), default=-1)
        end = words[last].at[-1] + 1 if last >= 0 else 0
        for _ in words[last + 1 :]:
            gap = re.compile(_GAP).match(self._text, end)
            token = _TOKEN.match(self._text, gap.end() if gap else end)
            end = token.end() if token else end
        return end

    def _edits_after(self, end: int, new: str) -> Iterator[Edit]:
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
        text = applied(self._text, [edit])
        old, new = self._try_follow(self._text), self._try_follow(text)
        if old is None or new is None or text == self._text:
            return False
        if not self._changes_only(name, old, new):
            return False
        self._keep(text, edit, name, before, after)
        return True

    def _keep(self, text: str, edit: Edit, name: str, before: str, after: str) -> None:
        written_name = self._option_words.get(name, [name])[0].partition("=")[0]
        line_number = edit.line_number(self._text)
        self._changes.append(ScriptChange(line_number, written_name, before, after))
        self._text = text

    def _try_follow(self, text: str) -> FollowedScript | None:
        try:
            return self._read(text)
        except InputError:
            return None

    def _changes_only(self, name: str, old: FollowedScript, new: FollowedScript) -> bool:
        """Whether one option is as the launch says, and all other words of all commands are
        as before.
        """
        if len(old.followed) != len(new.followed):
            return False
        expected = self._options.get(name)
        for index, (old_call, new_call) in enumerate(zip(old.followed, new.followed, strict=True)):
            before, after = _texts(old_call), _texts(new_call)
            is_target = index == self._target_index
            if before == after and not is_target:
                continue
            if self._others(before, name) != self._others(after, name):
                return False
            current = self._named(after, name)
            if is_target:
                if expected is None and len(current) >= len(self._named(before, name)):
                    return False
                if current and not _stands(after, current[-1].position, self._trainer):
                    return False
            if expected is not None and (
                not current or set(current[-1].values) != set(expected.values)
            ):
                return False
        return True

    def _named(self, words: Sequence[str], name: str) -> list[_Option]:
        """Each time that a command gives one option."""
        return [option for option in _options(words, self._trainer) if option.name == name]

    def _others(self, words: Sequence[str], name: str) -> list[str]:
        """The words of a command without one option."""
        removed = {
            index
            for option in self._named(words, name)
            for index in range(option.position, option.end)
        }
        return [word for index, word in enumerate(words) if index not in removed]

    def _span(self, words: Sequence[TracedWord], option: _Option) -> tuple[int, int, int] | None:
        """Where an option stands in the text: its begin, its end, and where its value begins."""
        name = words[option.position]
        inline = "=" in name.text and not option.separate_words
        part = name.slice(0, name.text.index("=") + 1 if inline else len(name.text))
        if not part.whole or self._text[part.at[0] : part.at[-1] + 1] != part.text:
            return None
        start, end = part.at[0], part.at[-1] + 1
        first = end
        for number in range(option.separate_words or (1 if part.text.endswith("=") else 0)):
            gap = re.compile(_GAP).match(self._text, end)
            token = _TOKEN.match(self._text, gap.end() if gap else end)
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


def _stands(words: Sequence[str], index: int, trainer: str) -> bool:
    """Whether a word over a file stands behind it, where the trainer reads it."""
    if trainer not in KEYS or words[index].startswith("--"):
        return True
    file = file_of(words)
    return file is not None and index > file


def _texts(call: TracedCall) -> list[str]:
    return [word.text for word in call.traced_words]


def _value_of(read: FollowedScript, name: str) -> TracedWord | None:
    """What a variable holds; None where it is not set, or is an array."""
    value: Any = read.holds.get(name)
    return None if isinstance(value, list) else value


def _without(text: str, start: int, end: int, _first: int) -> Edit:
    """An edit that removes an option, and its line where nothing else is on it."""
    line_start, line_end = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    alone = not text[line_start:start].strip()
    if alone and re.fullmatch(r"[ \t]*\\?", text[end:line_end]):
        if text[end:line_end].rstrip().endswith("\\"):
            return Edit(line_start, line_end + 1, "")
        before = re.search(r"[ \t]*\\\n\Z", text[:line_start])
        if before:  # the line before ends the command now
            return Edit(before.start(), line_end, "")
        return Edit(line_start, min(line_end + 1, len(text)), "")
    while start > 0 and text[start - 1] in " \t":
        start -= 1
    return Edit(start, end, "")
