"""The server of `mofa ui`, on the loopback address only; one question at a time. Not a verb."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from email import message_from_bytes
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qsl

from mofa_model.answers.paste_form import FILES, MOST, PasteForm, paste_form
from mofa_model.answers.paste_form import form_fields as paste_fields
from mofa_model.answers.what_if import WhatIf, figure_of, form_fields, what_if
from mofa_model.answers.which_form import form_fields as which_fields
from mofa_model.answers.which_form import which_form
from mofa_model.page.markup import HEADERS, el, page, text
from mofa_model.page.paste import ADDRESS as PASTE
from mofa_model.page.paste import paste_page
from mofa_model.page.what_if import sweep_sections, what_if_page
from mofa_model.page.which import which_page
from mofa_model.pasted.reading import PastedText

LOOPBACK: Final = "127.0.0.1"
_NAMES: Final = ("127.0.0.1", "localhost")
"""Names of this machine; a request under another name comes from another site's DNS: refused."""
_OWN_SITES: Final = ("", "none", "same-origin")
"""`Sec-Fetch-Site` of questions from this page or the keyboard; old browsers and curl send none."""
_WRONG_ADDRESS: Final = ("Refused", "Open this page by the address that `mofa ui` printed.")
_BUSY: Final = ("Busy", "Others are asking: load this page again in a moment.")
_ELSEWHERE: Final = (
    "a page of another site asked this, not you; look at it, and press the button below if it is"
    " your question"
)
EXPORT: Final = "/export"
WHICH: Final = "/which"
WAITING: Final = 8
"""Most questions at once, with those that wait. [1]"""
SILENT: Final = 10.0
"""Longest time that a connection may take to send its question. [s]"""


class DeskServer(ThreadingHTTPServer):
    """The server of the page; it is used by `with`."""

    daemon_threads = True

    def __init__(self, port: int, models: Sequence[str] = ()) -> None:
        """Listen on the loopback; `models` may be asked for beside the presets."""
        super().__init__((LOOPBACK, port), _Handler)
        self._models = tuple(models)
        self._answering = threading.Lock()
        self._places = threading.BoundedSemaphore(WAITING)
        self.hosts = {f"{name}:{self.server_port}" for name in _NAMES}
        """Names under which it answers."""

    def unanswered(self, values: Mapping[str, str], why: str) -> str:
        """The page with its form filled in and the reason for no answer."""
        return _page(WhatIf(values=values, errors={"": why}), self._models, alone=False)

    def answered(
        self, path: str, values: Mapping[str, str], texts: Sequence[PastedText] = ()
    ) -> str | None:
        """The page with the answer; None while too many questions wait."""
        if not self._places.acquire(blocking=False):
            return None
        try:
            with self._answering:
                if path == PASTE:
                    return _paste(paste_form(values, texts))
                if path == WHICH:
                    return _which(values, self._models)
                answer = what_if(values, self._models)
                return _page(answer, self._models, alone=path == EXPORT)
        finally:
            self._places.release()


def _paste(pasted_form: PasteForm) -> str:
    from mofa_model.verbs.advise_folder import kind_of, launch_texts

    answer = pasted_form.answer
    if answer is None or answer.answer is None:
        return paste_page(
            fields=paste_fields(), values=pasted_form.values, errors=pasted_form.errors
        )
    texts, _ = launch_texts(answer.answer, kind_of("JobSet"), answer.script())
    return paste_page(
        fields=paste_fields(),
        values=pasted_form.values,
        errors={},
        brief_lines=pasted_form.brief_lines(),
        tables=pasted_form.tables(),
        view=answer.answer.view(),
        texts=texts,
        command=pasted_form.command(),
    )


def sent_form(kind: str, body: bytes) -> tuple[dict[str, str], list[PastedText]]:
    """The fields of a form that was sent, and its files with their names."""
    whole = b"Content-Type: " + kind.encode("latin-1") + b"\r\n\r\n" + body
    values, texts = dict[str, str](), list[PastedText]()
    for part in message_from_bytes(whole, policy=HTTP).iter_parts():
        name = part.get_param("name", header="content-disposition")
        data = part.get_payload(decode=True)
        content = data.decode("utf-8", "replace") if isinstance(data, bytes) else ""
        content = content.replace("\r\n", "\n")
        if name == FILES and content.strip():
            texts.append(PastedText(content, part.get_filename() or FILES))
        elif isinstance(name, str) and name != FILES:
            values[name] = content
    return values, texts


def _which(values: Mapping[str, str], models: Sequence[str]) -> str:
    form = which_form(values, models)
    return which_page(
        fields=which_fields(models),
        values=form.values,
        errors=form.errors,
        tables=() if form.answer is None else form.answer.tables,
        command=form.command,
    )


def _page(answer: WhatIf, models: Sequence[str], *, alone: bool) -> str:
    swept = answer.sweep
    return what_if_page(
        fields=form_fields(models),
        values=answer.values,
        errors=answer.errors,
        view=None if answer.answer is None else answer.answer.view(),
        brief_lines=() if answer.answer is None else answer.answer.brief_lines(),
        swept=[]
        if swept is None
        else sweep_sections(swept.lines(figure_of(answer.values)), swept.tables[0], answer.unasked),
        commands=answer.commands(),
        alone=alone,
    )


class _Handler(BaseHTTPRequestHandler):
    """GET of the page, and of the page as a file."""

    server: DeskServer
    server_version = "mofa"
    sys_version = ""
    timeout = SILENT

    def do_GET(self) -> None:
        """Answer a request for a page."""
        path, _, query = self.path.partition("?")
        values = dict(parse_qsl(query, errors="replace"))
        if self.headers.get("Host", "") not in self.server.hosts:
            self._say(403, _plain(*_WRONG_ADDRESS))
        elif path not in {"/", EXPORT, WHICH, PASTE}:
            self._say(404, _plain("Not found", "There is no such page."))
        elif values and self.headers.get("Sec-Fetch-Site", "") not in _OWN_SITES:
            self._say(403, self.server.unanswered(values, _ELSEWHERE))
        else:
            html = self.server.answered(path, values)
            if html is None:
                self._say(503, _plain(*_BUSY))
            else:
                self._say(200, html, _file_name(values) if path == EXPORT else "")

    def do_POST(self) -> None:
        """Answer a form that was sent, from this page alone."""
        length = self.headers.get("Content-Length", "")
        kind = self.headers.get("Content-Type", "")
        if self.headers.get("Host", "") not in self.server.hosts:
            self._say(403, _plain(*_WRONG_ADDRESS))
        elif self.path != PASTE:
            self._say(501, _plain("Refused", "Nothing can be sent to this page."))
        elif not length.isdecimal() or int(length) > MOST:
            self.close_connection = True
            self._say(413, _plain("Too long", f"Send at most {MOST >> 20} MiB."))
        else:
            body = self.rfile.read(int(length))
            if not self._is_ours():
                self._say(403, _plain("Refused", _ELSEWHERE))
            elif not kind.startswith("multipart/form-data"):
                self._say(415, _plain("Refused", "Send the form of this page."))
            else:
                html = self.server.answered(PASTE, *sent_form(kind, body))
                self._say(503 if html is None else 200, html or _plain(*_BUSY))

    def _is_ours(self) -> bool:
        """Whether this page sent a form, or a program without a page such as curl.

        Because our pages send no referrer, browsers send `Origin: null`, and the page's site in
        `Sec-Fetch-Site`; curl sends neither.
        """
        if site := self.headers.get("Sec-Fetch-Site", ""):
            return site in _OWN_SITES
        origin = self.headers.get("Origin", "")
        return not origin or origin.removeprefix("http://") in self.server.hosts

    def do_HEAD(self) -> None:
        """Answer as `do_GET` does, without the text."""
        self.do_GET()

    def _say(self, status: int, html: str, name: str = "") -> None:
        data = html.encode()
        self.send_response(status)
        for header, value in HEADERS.items():
            self.send_header(header, value)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        if name:
            self.send_header("Content-Disposition", f'attachment; filename="{name}"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: what people ask is private."""


def _plain(title: str, sentence: str) -> str:
    return text(page(title, el("h1", title), el("p", sentence)))


def _file_name(values: Mapping[str, str]) -> str:
    words = ["what-if", *(values.get(name, "") for name in ("model", "gpus", "gpu"))]
    name = re.sub(r"[^a-z0-9.]+", "-", "-".join(filter(None, words)).lower())
    return f"{name[:80]}.html"
