"""Gemini's requests for embeddings, under the upstream's own name of the model."""

from turnwise.wire.gemini.request import model_path
from turnwise.wire.json_fields import Fields, encode, first_byte, is_object, read_fields, read_items


def embed_path(path: str, *, model: str) -> str:
    """The client's path with the upstream's model in it."""
    return model_path(f"/models/{{model}}:{path.rpartition(':')[2]}", model=model)


def renamed_embeds(fields: Fields, *, model: str) -> bytes:
    """The body with this model, which each request of a batch names again. Source: Gemini API reference, "Embeddings"."""
    name = f"models/{model}"
    found: dict[str, object] = {**fields, "model": name} if "model" in fields else {**fields}
    if "requests" in fields and first_byte(fields["requests"]) == b"[":
        every = read_items(fields["requests"])
        found["requests"] = [{**read_fields(raw), "model": name} if is_object(raw) else raw for raw in every]
    return encode(found)
