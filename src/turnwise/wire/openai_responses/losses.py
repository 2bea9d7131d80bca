"""What of the vocabulary the Responses API cannot carry, and what becomes of it."""

from turnwise.wire.family import Loss

LOSSES = (
    Loss(what="stop, seed, reasoning_tokens", direction="request", becomes="left out: the API has no such fields"),
    Loss(what="ToolResult.is_error", direction="request", becomes="left out; the text says what failed"),
    Loss(what="name of a ToolResult whose call is not in the request", direction="request", becomes='""'),
    Loss(what="arguments of a call that is not complete", direction="request", becomes="{}"),
    Loss(what="name of an image; name of a file given by URL or id", direction="request", becomes="left out"),
    Loss(what="name of inline data without one", direction="request", becomes="`file` (the API insists on a name)"),
    Loss(
        what="media type of what a URL or id stands for",
        direction="request",
        becomes="image/* or application/octet-stream",
    ),
    Loss(what="files in an assistant's message", direction="request", becomes="left out"),
    Loss(
        what="reasoning without encrypted content or raw content, where nothing is stored",
        direction="request",
        becomes="left out: the API answers 404 to a reference that it did not store",
    ),
    Loss(what="refusal and citations without item id", direction="request", becomes="plain text of the assistant"),
    Loss(what="citations of another family, citations on a user's text", direction="both", becomes="left out"),
    Loss(what="border between neighbouring assistant, or tool, messages", direction="request", becomes="one message"),
    Loss(what="system message before all others", direction="request", becomes="an instruction in Request.system"),
    Loss(what="empty messages", direction="request", becomes="left out"),
    Loss(what="parts of an assistant's message without item id", direction="response", becomes="ids are made up"),
    Loss(what="item id that comes after the part's first piece", direction="response", becomes="the id that was sent"),
    Loss(what="order of server-side items that overlap", direction="response", becomes="the order in which they ended"),
    Loss(what="tool_choice, parallel_tool_calls without tools", direction="request", becomes="left out"),
    Loss(
        what="pause, refusal and tool_calls as finish", direction="response", becomes="completed; read from the items"
    ),
    Loss(what="cut as finish", direction="response", becomes="incomplete without a reason"),
    Loss(
        what="free-form tools, calls and results where the endpoint has none",
        direction="request",
        becomes="JSON with one string parameter `input`",
    ),
    Loss(what="repairs, explanation of the finish", direction="response", becomes="left out"),
    Loss(what="files in a response", direction="response", becomes="left out: generated images are server-side items"),
)
