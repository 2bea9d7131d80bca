"""What the Messages API cannot carry. Tested: encoding and decoding loses this and nothing else."""

from turnwise.wire.family import Loss

LOSSES: tuple[Loss, ...] = (
    Loss(what="seed", direction="request", becomes="left out"),
    Loss(what="name and strictness of the output schema", direction="request", becomes="the schema alone"),
    Loss(what="reasoning effort `minimal`", direction="request", becomes="`low`"),
    Loss(what="no output limit", direction="request", becomes="`max_tokens`, which the API insists on"),
    Loss(
        what="thinking beside a forced tool choice, or with an output limit of 1,024 tokens and less",
        direction="request",
        becomes="left out: the API refuses both together",
    ),
    Loss(
        what="a thinking budget that reaches the output limit",
        direction="request",
        becomes="one token less than the limit",
    ),
    Loss(what="temperature while thinking", direction="request", becomes="left out: the API takes none but 1"),
    Loss(what="tool choice without tools", direction="request", becomes="left out: the API refuses it"),
    Loss(what="parallel calls allowed or not, under tool choice `none`", direction="request", becomes="left out"),
    Loss(what="free-form tools", direction="request", becomes="a JSON tool with one string parameter `input`"),
    Loss(what="free-form calls", direction="both", becomes='a JSON call: {"input": text}'),
    Loss(
        what="that a result is an error, where it holds no words or a file",
        direction="request",
        becomes="a plain result: the API refuses it otherwise",
    ),
    Loss(what="free-form mark of a result", direction="request", becomes="a plain result"),
    Loss(what="arguments of a call that is not complete", direction="request", becomes="`{}`"),
    Loss(what="why a call is not complete", direction="both", becomes="left out"),
    Loss(
        what="characters of a call id outside of [a-zA-Z0-9_-]",
        direction="both",
        becomes="`_`, with a print of the id behind it, alike in the call and its result",
    ),
    Loss(what="name of the tool on a result without its call", direction="request", becomes="empty"),
    Loss(
        what="boundary between neighbouring messages of one role",
        direction="request",
        becomes="one message, tool results first",
    ),
    Loss(
        what="system messages in mid-conversation (profile `mid_system` off)",
        direction="request",
        becomes="user messages",
    ),
    Loss(what="messages of which nothing can be sent", direction="request", becomes="left out"),
    Loss(what="empty texts", direction="both", becomes="left out: the API refuses them"),
    Loss(
        what="texts of white space, but beside other parts of an assistant message",
        direction="request",
        becomes="left out: the API refuses them",
    ),
    Loss(
        what="white space at the end of an assistant message that is the last",
        direction="request",
        becomes="cut off: the API refuses it",
    ),
    Loss(
        what="reasoning without this API's signature",
        direction="request",
        becomes="left out: the API refuses it",
    ),
    Loss(what="refusals", direction="both", becomes="text"),
    Loss(what="files in assistant messages", direction="both", becomes="left out"),
    Loss(what="audio and video", direction="request", becomes="a line of text that says what was left out"),
    Loss(what="name of an image", direction="request", becomes="left out"),
    Loss(what="media type of a text document", direction="request", becomes="`text/plain`"),
    Loss(
        what="media type of a file by URL or id",
        direction="request",
        becomes="`image/*`, `application/pdf` (URL) or `application/*` (id)",
    ),
    Loss(
        what="opaque data, citations and items of other families, and their server-side tools",
        direction="both",
        becomes="left out",
    ),
    Loss(
        what="opaque fields of a text or call that come after it has begun",
        direction="response",
        becomes="left out of streams: they stand in the block's start",
    ),
    Loss(what="the finish reasons `error` and `cut`", direction="response", becomes="no stop reason, read as `cut`"),
    Loss(what="the finish reason `content_filter`", direction="response", becomes="`refusal`"),
    Loss(what="the provider's own finish word and usage object", direction="response", becomes="this API's own"),
    Loss(
        what="explanation of a finish that is no refusal",
        direction="response",
        becomes="left out",
    ),
    Loss(what="what came before a fault", direction="response", becomes="left out of bodies: an error object"),
    Loss(what="repairs", direction="response", becomes="left out"),
)
