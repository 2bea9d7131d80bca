"""What Chat Completions cannot carry, as data; `tests/wire` proves that nothing else is lost."""

from turnwise.wire.family import Loss

LOSSES = (
    Loss(
        what="order of the parts of an assistant message",
        direction="both",
        becomes="reasoning, text, refusal, calls: each kind joined with nothing between",
    ),
    Loss(
        what="empty text of an assistant message",
        direction="both",
        becomes="no part",
    ),
    Loss(
        what="reasoning",
        direction="request",
        becomes="the field that the profile names; nothing where it names none",
    ),
    Loss(
        what="opaque data of other families",
        direction="both",
        becomes="nothing",
    ),
    Loss(
        what="provider items of other families, and tools that ran on the server",
        direction="request",
        becomes="nothing",
    ),
    Loss(
        what="citations",
        direction="request",
        becomes="nothing: the API takes no annotations back",
    ),
    Loss(
        what="files in a tool result",
        direction="request",
        becomes="a user message after the results that names the call",
    ),
    Loss(
        what="the media type of a file given by address or id, the name of an image, audio or id",
        direction="both",
        becomes="`image/*`, `video/*` or `application/octet-stream`; nothing",
    ),
    Loss(
        what="files of an assistant message",
        direction="request",
        becomes="nothing: the API takes none there; a line of text where the message holds nothing else",
    ),
    Loss(
        what="`is_error` of a result, and the name of a result whose call is not there",
        direction="request",
        becomes="nothing; an empty name",
    ),
    Loss(
        what="the state and the arguments of a call that is not complete",
        direction="request",
        becomes="complete, with `{}`",
    ),
    Loss(
        what="consecutive tool messages",
        direction="request",
        becomes="one",
    ),
    Loss(
        what="a leading system message in `messages`",
        direction="request",
        becomes="one of `system`",
    ),
    Loss(
        what="tool choice and `parallel_tool_calls` without tools",
        direction="request",
        becomes="nothing: the API refuses them",
    ),
    Loss(
        what="finish reason `pause`, `refusal` without a refusal, `stop` with one",
        direction="response",
        becomes="`stop`, `content_filter`, `refusal`",
    ),
    Loss(
        what="the provider's own finish word that contradicts the reason or is another family's, and such a usage object",
        direction="response",
        becomes="this family's word and object for the same",
    ),
    Loss(
        what="a second beginning of a response, and a final part that contradicts its deltas",
        direction="response",
        becomes="what was written stays written",
    ),
    Loss(
        what="the provider's own sentence about the end",
        direction="response",
        becomes="nothing",
    ),
    Loss(
        what="repairs, and the kind of a fault beside its status and code",
        direction="response",
        becomes="nothing",
    ),
)
