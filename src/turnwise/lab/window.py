"""A model's window and output limit: a request past them is refused in the words of its family's API."""

from turnwise.lab.raw import Raw, dig, either, table
from turnwise.lab.strict import Rejected


def check_room(
    family: str, *, body: Raw, model: str, prompt_tokens: int, window_tokens: int | None, output_tokens: int | None
) -> None:
    """Raise Rejected where the prompt, or the prompt with the output that is asked for, is too much for the model.

    Sources: recorded refusals (DeepSeek, OpenAI Responses, Vertex AI); Anthropic and Chat Completions as in public issues
    (continuedev/continue 6080, anthropics 203052 tokens in continuedev/continue 11371, evalstate/fast-agent 621,
    BerriAI/litellm 15715, enoch3712/ExtractThinker 346, stackblitz-labs/bolt.diy 955).
    """
    asked = asked_output(family, body=body)
    if output_tokens is not None and asked is not None and asked > output_tokens:
        raise output_refusal(family, model=model, asked=asked, limit=output_tokens)
    if window_tokens is None:
        return
    counted = asked if family in COUNTS_OUTPUT and asked is not None else 0
    if prompt_tokens + counted > window_tokens:
        raise window_refusal(family, prompt=prompt_tokens, asked=counted, window=window_tokens)


# Which APIs refuse a prompt that fits when the output asked for does not: the others give what is left.
COUNTS_OUTPUT = frozenset({"anthropic_messages", "openai_chat"})


def asked_output(family: str, *, body: Raw) -> int | None:
    """The output limit that the request names."""
    match family:
        case "openai_responses":
            found = table(body).get("max_output_tokens")
        case "gemini":
            found = either(dig(body, "generationConfig"), "maxOutputTokens", "max_output_tokens")
        case _:
            found = either(body, "max_completion_tokens", "max_tokens")
    return found if isinstance(found, int) else None


def window_refusal(family: str, *, prompt: int, asked: int, window: int) -> Rejected:
    match family:
        case "anthropic_messages" if prompt > window:
            return Rejected(f"prompt is too long: {prompt} tokens > {window} maximum")
        case "anthropic_messages":
            return Rejected(
                f"input length and `max_tokens` exceed context limit: {prompt} + {asked} > {window}, decrease input length "
                "or `max_tokens` and try again"
            )
        case "gemini":
            return Rejected(
                f"The input token count ({prompt}) exceeds the maximum number of tokens allowed ({window})."
            )
        case "openai_responses":
            return Rejected(
                "Your input exceeds the context window of this model. Please adjust your input and try again.",
                param="input",
                code="context_length_exceeded",
            )
        case _:
            return Rejected(
                f"This model's maximum context length is {window} tokens. However, you requested {prompt + asked} tokens "
                f"({prompt} in the messages, {asked} in the completion). Please reduce the length of the messages or "
                "completion.",
                param="messages",
                code="context_length_exceeded",
            )


def output_refusal(family: str, *, model: str, asked: int, limit: int) -> Rejected:
    match family:
        case "anthropic_messages":
            return Rejected(
                f"max_tokens: {asked} > {limit}, which is the maximum allowed number of output tokens for {model}"
            )
        case "gemini":
            return Rejected(
                f"Unable to submit request because it has a maxOutputTokens value of {asked} but the supported range is "
                f"from 1 (inclusive) to {limit + 1} (exclusive). Update the value and try again."
            )
        case "openai_responses":
            return Rejected(
                f"Invalid 'max_output_tokens': integer above maximum value. Expected a value <= {limit}, but got {asked} "
                "instead.",
                param="max_output_tokens",
                code="integer_above_max_value",
            )
        case _:
            return Rejected(
                f"max_tokens is too large: {asked}. This model supports at most {limit} completion tokens, whereas you "
                f"provided {asked}.",
                param="max_tokens",
            )
