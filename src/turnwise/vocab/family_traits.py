"""What an API family takes and says, as far as rules and the turn need it: facts in place of names."""

from typing import Literal

import msgspec


class FamilyTraits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of one family. Each family's folder makes its own (`Family.traits`); a turn's configuration carries it, so that a
    turn is rebuilt by the facts that it began with. What is left out here: the API refuses nothing of the kind.
    """

    # what it takes of a history
    begins_with_user: bool = False  # refuses a history in which the assistant has the first word
    joins_neighbours: bool = False  # two messages of the assistant in a row go as one
    refuses_blank_text: bool = False
    refuses_trailing_reasoning: bool = False  # at the end of an assistant's message
    refuses_system_files: bool = False  # takes texts alone in a system message
    refused_in_ids: str = (
        ""  # pattern of a character that a call's id may not have; ids go back as they came without one
    )
    id_characters: int | None = None  # most of a call's id
    carried_in_ids: str = ""  # an id with this word carries what its server wants back: it stays whole
    wants_called_tools: bool = False  # refuses a history with calls in a request without tools
    plain_tools_behind: bool = (
        False  # takes no new tools behind messages that are the provider's own, or the first ones
    )

    # what it makes of a request
    pause_goes_back_last: bool = False  # a paused response is sent back as the last message
    caches_within_messages: bool = False  # a message that only became longer breaks no cached beginning
    adds_reasoning_budget: bool = False  # a budget for reasoning goes on top of the endpoint's own limit of output
    has_dialects: bool = False  # its servers differ in what they take of a conversation, and their refusals tell how
    may_refuse_behind: bool = False  # a refusal may be about tools or instructions among the messages

    # what it answers
    hands_out_objects: Literal["never", "bodies", "always"] = (
        "never"  # arguments as objects, so that a cut does not show
    )

    def gives_objects(self, *, streamed: bool) -> bool:
        """Whether arguments come as objects in this mode."""
        return self.hands_out_objects == "always" or (self.hands_out_objects == "bodies" and not streamed)


NO_TRAITS = FamilyTraits()
"""Of a family of which nothing is known: journals of before the turn's configuration carried traits have it."""
