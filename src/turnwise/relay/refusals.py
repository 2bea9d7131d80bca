"""What the gateway does not do for a client, said in the words of the client's API."""

import msgspec

from turnwise.vocab import Fault, FaultKind
from turnwise.wire.json_fields import encode, read_fields, write_object
from turnwise.wire.profiles import FamilyName
from turnwise.wire.registry import family
from turnwise.wire.relay_facts import relay_facts


class RequestRefused(ValueError):
    """The request stays here. `field` is the client's own name of the field at fault, empty where it is the whole body."""

    def __init__(self, message: str, *, field: str = "", status: int = 400) -> None:
        super().__init__(message)
        self.field = field
        self.fault = Fault(kind=FaultKind.BAD_REQUEST, message=message, status=status)


def refusal_answer(refused: RequestRefused, *, client: FamilyName) -> tuple[int, bytes]:
    """HTTP status and body, as the client's API answers such a request."""
    status, body = family(client).encode_fault(refused.fault)
    status = refused.fault.status or status
    if not relay_facts(client).names_fields or not refused.field:
        return status, body
    error = {**read_fields(read_fields(body)["error"]), "param": msgspec.Raw(encode(refused.field))}
    return status, write_object({"error": write_object(error)})
