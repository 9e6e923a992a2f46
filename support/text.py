"""Text out of files, for people's eyes."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with its control, bidirectional and other invisible characters spelled out, such as ``\\x1b`` and
    ``\\u202e``; line ends and tabs stay. A terminal or a browser shows them and does not obey them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def escape_html(text: str) -> str:
    """Text as HTML: nothing in it is a tag, or changes the reading order of the text behind it."""
    import html  # every command starts with this module, and few write HTML

    return html.escape(printable(text))
