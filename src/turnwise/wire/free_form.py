"""Tools of free-form text where an API, or an endpoint, has JSON tools only: one object with one string."""

from turnwise.wire.json_fields import quote, text_of_raw, write_object

FREE_FORM_PARAMETER = "input"

FREE_FORM_SCHEMA = '{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}'


def free_form_arguments(text: str) -> str:
    """The text of a free-form call as the arguments of its stand-in."""
    return text_of_raw(write_object({FREE_FORM_PARAMETER: quote(text)}))
