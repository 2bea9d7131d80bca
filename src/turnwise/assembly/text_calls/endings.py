"""Special tokens of chat templates that end an answer, and that a server has left in its text. They are no part of the answer.

Sources: the chat templates and tokenizers of Qwen, Hermes, Kimi and LFM (`<|im_end|>`), Llama 3 (`<|eot_id|>`, `<|eom_id|>`,
`<|end_of_text|>`) and 4 (`<|eot|>`, `<|eom|>`, `<|python_end|>`), Mistral (`</s>`), Gemma (`<end_of_turn>`, `<eos>`) and Gemma 4
(`<turn|>`), GPT and Qwen (`<|endoftext|>`), DeepSeek (`<｜end▁of▁sentence｜>`), GLM (`<|user|>`, `<|observation|>`), MiniMax
(`[e~[`), Command (`<|END_OF_TURN_TOKEN|>`) and Seed-OSS (`<seed:eos>`). Those of harmony are in `harmony`.
"""

import re

TOKENS = (
    *(
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|eot|>",
        "<|eom|>",
        "<|python_end|>",
        "<|end_of_text|>",
        "<|endoftext|>",
    ),
    *("</s>", "<eos>", "<end_of_turn>", "<turn|>", "<｜end▁of▁sentence｜>", "<|user|>", "<|observation|>", "[e~["),
    *("<|END_OF_TURN_TOKEN|>", "<seed:eos>"),
)
MOST = 64  # characters of such tokens, and of blanks around them, that wait for the end of the text
_ANY = "|".join(map(re.escape, TOKENS))
_BEGINNINGS = sorted({token[:length] for token in TOKENS for length in range(1, len(token))}, key=len, reverse=True)
ANY = re.compile(_ANY)
_BEGIN = re.compile(r"[<\[]")
_OPEN_RUN = re.compile(rf"(?:(?:{_ANY})\s*+)*+(?:{'|'.join(map(re.escape, _BEGINNINGS))})?\Z")
_RUN = re.compile(rf"\s*+(?:(?:{_ANY})\s*+)*+\Z")
_FIRST = re.compile(rf"(?:{_ANY})\s*+(?:(?:{_ANY})\s*+)*+\Z")


def held_from(text: str) -> int:
    """Where the tokens begin that the text ends with, the last one perhaps not whole; its length where there are none."""
    begins = (found.start() for found in _BEGIN.finditer(text, max(0, len(text) - MOST)))
    return next((at for at in begins if _OPEN_RUN.match(text, at) is not None), len(text))


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
