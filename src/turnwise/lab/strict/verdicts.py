"""A refusal and how each family writes it."""

import msgspec

from turnwise.lab.raw import Raw, dump


class ModelRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a model, rather than its API, insists on; a script may say so. And what stands in headers."""

    prefill: bool = True  # False: the conversation must end with the user (Claude Opus 4.6 and later)
    adaptive: bool = (
        False  # True: it thinks when it likes, so its calls may come back without (API docs, "Adaptive thinking")
    )
    signed: bool = False  # True: it thinks, and its signed thoughts have to come back unchanged beside their calls
    generation: str = ""  # a name of `generations.py`: what that model refuses is refused
    betas: str = ""  # what the request's header `anthropic-beta` says
    parts: tuple[str, ...] = ()  # Chat Completions: types of content part that its server takes beside OpenAI's


LENIENT_MODEL = ModelRules()


class Rejected(Exception):
    """The request is refused. `type` is the family's own word where it is not the usual one for `status`; `body` is the whole
    answer where a server does not write it as its family does."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        type: str | None = None,
        body: Raw = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param
        self.code = code
        self.type = type
        self.body = body


# platform.openai.com/docs/guides/error-codes; recorded: `server_error`, `insufficient_quota`, `requests`
OPENAI_TYPES = {429: "requests", 500: "server_error", 502: "server_error", 503: "server_error"}
OPENAI_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
# docs.anthropic.com/en/api/errors
ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
# google.rpc.Code
GOOGLE_STATUSES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def error_object(family: str, *, rejected: Rejected) -> object:
    """The JSON that this family's API, or the server that refused, answers an error with."""
    status = rejected.status
    if rejected.body is not None:
        return rejected.body
    match family:
        case "anthropic_messages":
            error = {
                "type": rejected.type or ANTHROPIC_TYPES.get(status, "invalid_request_error"),
                "message": rejected.message,
            }
            return {"type": "error", "error": error, "request_id": "req_lab"}
        case "gemini":
            word = rejected.type or GOOGLE_STATUSES.get(status, "INVALID_ARGUMENT")
            return {"error": {"code": status, "message": rejected.message, "status": word}}
        case _:
            return {
                "error": {
                    "message": rejected.message,
                    "type": rejected.type or OPENAI_TYPES.get(status, "invalid_request_error"),
                    "param": rejected.param,
                    "code": rejected.code or OPENAI_CODES.get(status),
                }
            }


def error_body(family: str, *, rejected: Rejected) -> bytes:
    return dump(error_object(family, rejected=rejected))
