"""`mofa FILE`: advice for scripts, settings, models and machines that people have; runs none."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mofa_model import files, output, presets, terminal
from mofa_model.answers.options import add_options, question_of
from mofa_model.answers.questions import PasteQuestion
from mofa_model.errors import InputError, MofaError

if TYPE_CHECKING:
    from mofa_model.answers.advise import AdviceAnswer
    from mofa_model.answers.pasted import PasteAnswer
    from mofa_model.launch import ChangedScript
    from mofa_model.pasted.reading import PastedText

EXAMPLES: Final = """\
examples:
  `mofa FILE` is short for this verb; a verb's name goes before a file's
    mofa paste train.sbatch --gpu h100
  all that was read, with file and line, and the whole advice
    mofa paste train.sbatch --gpu h100 -o wide
  a manifest, from standard input
    mofa paste -
  a model alone
    mofa paste llama3-8b --gpu h100 --gpus 64 --seq 8192 --global-batch 512
  the launch that it advises, as files
    mofa paste train.sbatch --gpu h100 --save-dir out"""


_FILES: Final = (
    ".sh", ".yaml", ".yml", ".json", ".toml", ".py", ".sbatch", ".slurm", ".txt", ".cfg", ".conf",
    ".md", ".ipynb", ".log",
)  # fmt: skip
"""Endings of files: a name with one of them is never taken for a model."""


def configure(parser: ArgumentParser) -> None:
    """Add the texts, options for facts that they lack, and options for files of the answer."""
    answer = add_options(parser, PasteQuestion)["answer"]
    output.add_folder_options(answer, "the launch: a script, a manifest, the answer")
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Answer; exit code 2 where facts are missing, 3 where nothing can be recommended."""
    from mofa_model.answers import pasted

    question = question_of(PasteQuestion, arguments)
    question, texts, manifest = _given(question)
    if arguments.save_dir:
        files.check_folder(arguments.save_dir, overwrite=arguments.overwrite)
    if manifest:
        piped = any(pasted_text.name == "standard input" for pasted_text in texts)
        return _manifest(question, arguments, manifest, "-" if piped else manifest)
    launched_by = "--save-dir" if arguments.save_dir else ""
    with output.progress("searching", total=1.0) as advance:
        answer = pasted.answered(question, texts, advance, launched_by)
        is_interactive = sys.stdin.isatty() and sys.stderr.isatty()
        if answer.asks and arguments.output in {"table", "wide"} and is_interactive:
            question = _ask(answer)
            answer = pasted.answered(question, texts, advance, launched_by, assumes=True)
    _print(answer, arguments.output, arguments.save_dir or "")
    if answer.answer is not None:
        _save(answer.answer, arguments.save_dir, answer.script() if arguments.save_dir else None)
    answer.raise_for_status()
    return 0


def _given(question: PasteQuestion) -> tuple[PasteQuestion, list[PastedText], str]:
    """The question without its texts, the texts, and the file of a job's manifest; else empty."""
    from mofa_model.answers.pasted import beside, texts_of
    from mofa_model.pasted.reading import PastedText
    from mofa_model.pasted.recognise import PastedKind, kind_of

    names = list(question.pasted)
    paths = [name for name in names if name == "-" or files.path_kind(name)]
    others = [name for name in names if name not in paths]
    if others and any(name.startswith("-") or " " in name for name in others):
        command = shlex.join(names) if len(names) > 1 else names[0]
        return replace(question, pasted=()), beside([PastedText(command, "the command")]), ""
    if len(others) > 1 or (others and question.model):
        raise InputError(f"{others[0]}: there is no such file, and a model is given already")
    if others:
        if others[0].endswith(_FILES) and not presets.is_address(others[0]):
            raise InputError(f"{others[0]}: there is no such file{_near(others[0])}")
        question = replace(question, model=others[0])
    texts = beside(texts_of(paths))
    jobs = [
        pasted for pasted in texts if kind_of(pasted.text, pasted.name) is PastedKind.KUBERNETES
    ]
    manifest = jobs[0].name if jobs else ""
    if manifest == "standard input":
        manifest = _kept(jobs[0].text, ".yaml")
    for number, pasted in enumerate(texts):
        if pasted.name == "standard input" and kind_of(pasted.text) is PastedKind.MODEL:
            texts[number] = pasted._replace(name=_kept(pasted.text, ".json"))
    return replace(question, pasted=()), texts, manifest


def _kept(text: str, ending: str) -> str:
    """The name of a file with a text of standard input, because other readers open files."""
    import atexit
    import tempfile
    from pathlib import Path

    with tempfile.NamedTemporaryFile("w", suffix=ending, delete=False, encoding="utf-8") as file:
        file.write(text)
    atexit.register(Path(file.name).unlink, missing_ok=True)
    return file.name


def _near(name: str) -> str:
    """A hint at a file in the same folder with a name like this one; empty without one."""
    from difflib import get_close_matches
    from pathlib import Path, PureWindowsPath

    folder = Path(name).parent
    try:
        names = [path.name for path in folder.iterdir() if path.is_file()][:2000]
    except OSError:
        return ""
    near = get_close_matches(PureWindowsPath(name).name, names, n=1)
    return f"; did you mean {folder / near[0]}?" if near else ""


def _manifest(question: PasteQuestion, arguments: Namespace, path: str, typed: str) -> int:
    """Answer a Kubernetes object as `mofa advise` does; `typed` is the typed name of its file."""
    from mofa_model.answers.advise import advise
    from mofa_model.answers.questions import AdviceQuestion

    changed = question.changed_fields()
    fields = {name: changed[name] for name in changed if name in AdviceQuestion.options}
    advice_question = AdviceQuestion(file=path, **fields)
    with output.progress("searching", total=1.0) as advance:
        answer = advise.of(advice_question, advance, "--save-dir" if arguments.save_dir else "")
    if arguments.output == "table":
        shown = replace(answer, question=replace(advice_question, file=typed))
        terminal.put(shown.brief_text(output.columns()))
    else:
        document: dict[str, object] = {
            "kind": "kubernetes",
            "trainer": answer.advice.trainer or None,
            "facts": {},
            "asks": [],
            "answer": answer.document,
        }
        output.emit(arguments.output, answer.tables_of(wide=True), document, records=answer.records)
    _save(answer, arguments.save_dir)
    answer.raise_for_status()
    return 0


def _save(
    answer: AdviceAnswer, folder: str | None, own_script: tuple[str, ChangedScript] | None = None
) -> None:
    """Write the launch, and the pasted script with it, into a folder; nothing without both."""
    if not folder or answer.launch is None:
        return
    from mofa_model.verbs import advise_folder

    is_changed = own_script is not None and own_script[1].changes
    names = advise_folder.save(folder, answer, "JobSet", own_script if is_changed else None)
    terminal.tell(f"saved: {folder}: {', '.join(names)}")
    if own_script is not None:
        script, changed = own_script
        for reason in changed.left:
            terminal.tell(f"not changed in {script}: {reason}")


def _print(answer: PasteAnswer, form: str, folder: str) -> None:
    if form == "table":
        if answer.answer is not None:
            saved = folder if answer.answer.launch is not None else ""
            terminal.put(answer.brief_text(output.columns(), saved))
        return
    tables = list(answer.tables)
    if answer.answer is not None:
        tables += answer.answer.tables_of(wide=True)
    output.emit(form, tables, answer.document, records=answer.records)


def _ask(answer: PasteAnswer) -> PasteQuestion:
    """Ask a person for at most two missing facts; returns the question with the answers."""
    from mofa_model.answers.paste_gaps import ASKED, ASSUMED, MOST
    from mofa_model.pasted.sentence import counted_gpus

    asks = [name for name in answer.asks if len(answer.asks) <= MOST or name not in ASSUMED]
    if len(asks) > MOST or answer.pasted_facts.other:
        answer.raise_for_status()
    fields = dict[str, Any]()
    for name in asks:
        flag, example = ASKED[name]
        if name == "gpus" and "gpus" in fields:
            continue
        field = next(
            option.name for option in PasteQuestion.options.values() if flag in option.flags
        )
        sys.stderr.write(f"{flag.lstrip('-').replace('-', ' ')} (Enter: {example}): ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise MofaError(f"{flag}: nothing was said; give it as an option")
        value = line.strip() or example
        if counted := counted_gpus(value):
            fields["gpus"], value = counted
        fields[field] = PasteQuestion.options[field].read(value)
    return replace(answer.question, **fields)
