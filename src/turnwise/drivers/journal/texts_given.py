"""Texts that come from a command line or a program."""


def is_text(text: str) -> bool:
    """Whether it can be written as UTF-8: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
