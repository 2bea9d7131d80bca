"""Special tokens of chat templates that end an answer, and that a server has left in its text. They are no part of the answer.

Sources: the chat templates of Qwen and Hermes (`<|im_end|>`), Llama 3 and 4 (`<|eot_id|>`, `<|eot|>`, `<|end_of_text|>`), Mistral
(`</s>`), Gemma (`<end_of_turn>`), and the tokenizers of GPT and Qwen (`<|endoftext|>`).
"""

import re

TOKENS = ("<|im_end|>", "<|eot_id|>", "<|eot|>", "<|end_of_text|>", "<|endoftext|>", "</s>", "<end_of_turn>")
MOST = 64  # characters of such tokens, and of blanks around them, that wait for the end of the text
_ANY = "|".join(map(re.escape, TOKENS))
_BEGINNINGS = sorted({token[:length] for token in TOKENS for length in range(1, len(token))}, key=len, reverse=True)
_OPEN_RUN = re.compile(rf"(?:(?:{_ANY})\s*+)*+(?:{'|'.join(map(re.escape, _BEGINNINGS))})?\Z")
_RUN = re.compile(rf"\s*+(?:(?:{_ANY})\s*+)*+\Z")
_FIRST = re.compile(rf"(?:{_ANY})\s*+(?:(?:{_ANY})\s*+)*+\Z")


def held_from(text: str) -> int:
    """Where the tokens begin that the text ends with, the last one perhaps not whole; its length where there are none."""
    at = text.find("<", max(0, len(text) - MOST))
    while at >= 0:
        if _OPEN_RUN.match(text, at) is not None:
            return at
        at = text.find("<", at + 1)
    return len(text)


def may_end(text: str) -> bool:
    """Whether the text is nothing but blanks and such tokens, or may become so."""
    bare = text.lstrip()
    return len(bare) <= MOST and _OPEN_RUN.match(bare) is not None


def is_end(text: str) -> bool:
    """Whether the text is nothing but blanks and such tokens."""
    return _RUN.match(text) is not None


def is_token(text: str) -> bool:
    """Whether the text is such tokens, and blanks behind them."""
    return _FIRST.match(text) is not None
