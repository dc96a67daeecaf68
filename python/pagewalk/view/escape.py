"""Escapes of control characters in text from outside."""

from __future__ import annotations

import re

# Controls (C0, DEL, C1), line separators, marks that reorder text, and halves of characters:
# bytes of an argument that were no UTF-8.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_BYTE = 0xDC00
"""Added by Python to a byte of an argument or file name that is no UTF-8."""


def visible(text: str) -> str:
    r"""The text with each control character written out: ``\n``, ``\x1b``, ``\u202e``.

    The result changes neither the state of a terminal nor the line and direction of writing.
    """
    return _UNSEEN.sub(lambda found: _written(found[0]), text)


def visible_lines(text: str) -> str:
    """Applies `visible` to each line of a text; line ends stay."""
    return "\n".join(visible(line) for line in text.split("\n"))


def shown(value: object, most: int = 60) -> str:
    """A value from the user, on one line of at most `most` characters, for messages."""
    try:
        text = repr(value)
    except Exception:  # the value's own __repr__ fails
        text = f"a {type(value).__name__}"
    text = visible(" ".join(text.split()))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _written(character: str) -> str:
    code = ord(character)
    if _BYTE + 0x80 <= code <= _BYTE + 0xFF:
        code -= _BYTE
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
