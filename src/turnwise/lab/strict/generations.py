"""What single models refuse of a request that their API takes from older ones, and in which words.

Sources, as of November 2026: Claude docs, "What's new in" and "Migration guide" of Opus 4.7, Opus 5, Opus 5.5, Sonnet 5,
Sonnet 5.5, Haiku 5.5, Fable 5, Fable 5.1 and Fable 5.2 (Mythos models are on the pages of Fable); OpenAI docs, "Using GPT-6",
"Models" and "Deployment checklist". Words that a page does not quote are reported: tool choice in can1357/oh-my-pi#12939,
sampling in BerriAI/litellm#26444 and #39631, effort in UKGovernmentBEIS/inspect_ai#5254; those of `computer` and of
`between_tools` are ours.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from turnwise.lab.raw import Raw, rows, table, text
from turnwise.lab.strict.verdicts import Rejected

ALL_EFFORTS = ("low", "medium", "high", "xhigh", "max")
COMPUTER = "computer_20251124"


class JudgedModel(msgspec.Struct, frozen=True, kw_only=True):
    """What one model takes. `thinking`: its types; `off_efforts`: the efforts beside which thinking may be off. `sampling`:
    temperature and top_p other than 1, always, beside effort `none`, or never."""

    thinking: tuple[str, ...] = ()
    off_efforts: tuple[str, ...] = ALL_EFFORTS
    efforts: tuple[str, ...] = ALL_EFFORTS
    chat_efforts: tuple[str, ...] = ()  # in Chat Completions, if they are others
    sampling: Literal["always", "beside none", "never"] = "never"
    forced: bool = True
    computer: bool = True


_TO_HIGH = ("low", "medium", "high")
_ASTRA = JudgedModel(chat_efforts=ALL_EFFORTS[:-1])
_LUNA = JudgedModel(efforts=("none", *ALL_EFFORTS), sampling="beside none")
_FABLE = JudgedModel(thinking=("adaptive",), forced=False)

GENERATIONS: Mapping[str, JudgedModel] = {
    "claude-opus-4-7": JudgedModel(thinking=("adaptive", "disabled")),
    "claude-opus-5": JudgedModel(thinking=("adaptive", "disabled"), off_efforts=_TO_HIGH),
    "claude-opus-5-5": JudgedModel(thinking=("adaptive",), forced=False, computer=False),
    "claude-sonnet-5": JudgedModel(thinking=("adaptive", "disabled")),
    "claude-sonnet-5-5": JudgedModel(
        thinking=("adaptive", "between_tools"), off_efforts=_TO_HIGH, forced=False, computer=False
    ),
    "claude-haiku-5-5": JudgedModel(thinking=("adaptive", "disabled")),
    "claude-fable-5": JudgedModel(thinking=("adaptive",)),
    "claude-fable-5-1": _FABLE,
    "claude-fable-5-2": msgspec.structs.replace(_FABLE, computer=False),
    "gpt-5.6": _LUNA,
    "gpt-6-luna": _LUNA,
    "gpt-6-astra": _ASTRA,
    "gpt-6.1-sol": _ASTRA,
    "gpt-6.2-sol": _ASTRA,
}


def check_generation(family: str, body: Raw, *, name: str) -> None:
    """Raises Rejected for the first thing in a body that the model of that name refuses."""
    found, fields = GENERATIONS[name], table(body)
    match family:
        case "anthropic_messages" if name.startswith("claude-"):
            _check_claude(fields, found)
        case "openai_responses" if name.startswith("gpt-"):
            effort = table(fields.get("reasoning")).get("effort")
            _check_gpt(fields, found, name=name, effort=effort, where="reasoning.effort", efforts=found.efforts)
        case "openai_chat" if name.startswith("gpt-"):
            efforts = found.chat_efforts or found.efforts
            effort = fields.get("reasoning_effort")
            _check_gpt(fields, found, name=name, effort=effort, where="reasoning_effort", efforts=efforts)
        case _:
            pass


def _check_claude(fields: dict[str, Raw], found: JudgedModel) -> None:
    type = text(table(fields.get("thinking")).get("type"))
    effort = text(table(fields.get("output_config")).get("effort"))
    if type and type not in found.thinking:
        instead = "between_tools" if (type, found.thinking[-1]) == ("disabled", "between_tools") else "adaptive"
        raise Rejected(
            f'"thinking.type.{type}" is not supported for this model. Use "thinking.type.{instead}" and '
            '"output_config.effort" to control thinking behavior.'
        )
    if type in ("disabled", "between_tools") and effort and effort not in found.off_efforts:
        raise Rejected(
            f'"thinking.type.{type}" is not supported with "output_config.effort" "{effort}" for this model.'
        )
    if effort and effort not in found.efforts:
        raise Rejected(f"output_config.effort: Input should be {', '.join(map(repr, found.efforts))}")
    for name in ("temperature", "top_p", "top_k"):
        if fields.get(name) is not None and (name == "top_k" or fields[name] != 1):
            raise Rejected(f"`{name}` is deprecated for this model.")
    if not found.forced and table(fields.get("tool_choice")).get("type") in ("any", "tool"):
        raise Rejected('tool_choice: type "tool" and "any" are not supported for this model.')
    if not found.computer and any(table(tool).get("type") == COMPUTER for tool in rows(fields.get("tools"))):
        raise Rejected(f"tools: `{COMPUTER}` is not supported for this model.")
    messages = rows(fields.get("messages"))
    if messages and table(messages[-1]).get("role") == "assistant":
        raise Rejected(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )


def _check_gpt(
    fields: dict[str, Raw], found: JudgedModel, *, name: str, effort: Raw, where: str, efforts: tuple[str, ...]
) -> None:
    if effort is not None and effort not in efforts:
        supported = ", ".join(f"'{one}'" for one in efforts[:-1])
        raise Rejected(
            f"Unsupported value: '{effort}' is not supported with the '{name}' model. Supported values are: {supported}, "
            f"and '{efforts[-1]}'.",
            param=where,
            code="unsupported_value",
        )
    if found.sampling == "always" or (found.sampling == "beside none" and effort == "none"):
        return
    for field in ("temperature", "top_p", "top_logprobs"):
        if fields.get(field) is not None and fields[field] != 1:
            raise Rejected(f"Unsupported parameter: '{field}' is not supported with this model.", param=field)
