"""Which series a PromQL expression reads: what is left of its words when functions, labels and text
are taken away.
"""

import re

TEXT = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'")
LABELS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
WORD = re.compile(r"(?<![\w:$.])[a-zA-Z_:][\w:]*(?!\w)(?!\s*\()")
KEYWORDS = {
    "and",
    "or",
    "unless",
    "bool",
    "offset",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
}


def series(expression):
    """Names of the series that an expression reads."""
    bare = TEXT.sub('""', expression)
    bare = re.sub(r"\{[^}]*\}", "", bare)
    bare = re.sub(r"\[[^\]]*\]", "", bare)
    bare = LABELS.sub("", bare)
    bare = re.sub(r"\boffset\s+-?\$?\w+", "", bare)
    bare = re.sub(r"\$\{?\w+\}?", "0", bare)
    return {
        word
        for word in WORD.findall(bare)
        if word.lower() not in KEYWORDS | {"inf", "nan", "group"}
    }
