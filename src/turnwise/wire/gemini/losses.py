"""What the Gemini API cannot carry, and what becomes of it. Tested: encoding and decoding loses this and nothing else."""

from turnwise.wire.family import Loss

LOSSES: tuple[Loss, ...] = (
    Loss(
        what="call ids where the profile does not send them",
        direction="request",
        becomes="pairs by name and order; decoding makes ids again",
    ),
    Loss(
        what="the arguments of a call that are not complete, or no JSON object",
        direction="request",
        becomes='`{}`; complete JSON of another type and free-form text become `{"input": ...}`',
    ),
    Loss(
        what="a call whose arguments are not complete JSON", direction="response", becomes="left out, as the API does"
    ),
    Loss(what="white space between the tokens of arguments", direction="response", becomes="none"),
    Loss(what="a finish word that came as a number", direction="response", becomes="the word"),
    Loss(what="the finish word of another family", direction="response", becomes="Gemini's word for the same reason"),
    Loss(what="free-form tools", direction="request", becomes="a JSON tool with one string parameter `input`"),
    Loss(what="refusal", direction="both", becomes="text; alone in a filtered answer: `promptFeedback`"),
    Loss(what="`refusal` as finish reason", direction="response", becomes="`SAFETY`, read as content_filter"),
    Loss(what="`pause` as finish reason", direction="response", becomes="`STOP`"),
    Loss(what="system messages inside the conversation", direction="request", becomes="user messages"),
    Loss(what="the order of results", direction="request", becomes="the order of their calls"),
    Loss(what="bounds between tool messages that follow each other", direction="request", becomes="one message"),
    Loss(what="messages without any part that Gemini takes", direction="request", becomes="left out"),
    Loss(what="bounds between the texts of one result", direction="request", becomes="one text, joined by newlines"),
    Loss(what="the order of texts and files in one result", direction="request", becomes="text first"),
    Loss(what="empty text without opaque data", direction="both", becomes="left out"),
    Loss(what="bounds between plain texts that follow each other", direction="response", becomes="one text"),
    Loss(what="citations of texts in requests", direction="request", becomes="left out"),
    Loss(what="which text of several a citation belongs to", direction="response", becomes="the last text"),
    Loss(what="search queries, search entry point, retrieval metadata", direction="response", becomes="left out"),
    Loss(what="safety ratings, logprobs", direction="response", becomes="left out"),
    Loss(what="names of files", direction="both", becomes="left out (the Gemini API refuses `displayName`)"),
    Loss(what="media types with a star", direction="request", becomes="guessed from the bytes, left out with a URL"),
    Loss(what="whether a file is named by URL or by id", direction="request", becomes="Gemini's own URIs are ids"),
    Loss(what="`strict` of tools", direction="request", becomes="left out"),
    Loss(what="the order of declared and server-side tools", direction="request", becomes="declared ones first"),
    Loss(what="tool choice without declared tools", direction="request", becomes="left out"),
    Loss(what="`parallel_tool_calls`", direction="request", becomes="left out: Gemini has no such field"),
    Loss(what="name and strictness of the output schema", direction="request", becomes="left out"),
    Loss(
        what="reasoning effort where the model takes a budget",
        direction="request",
        becomes="the budget that Google's compatibility table names",
    ),
    Loss(what="cache writes in usage", direction="response", becomes="part of the prompt's tokens"),
    Loss(what="opaque data of other families", direction="both", becomes="left out"),
)
