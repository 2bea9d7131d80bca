"""A client's request as the upstream reads it: the same body where both speak one family, else by way of the shared vocabulary.

Nothing is dropped in silence. What the upstream's family cannot carry is refused if the answer would be another one without it,
else it is told by name (`UpstreamRequest.told`).
"""

from collections.abc import Mapping

from msgspec.structs import replace

from turnwise.relay.client_request import ClientRequest
from turnwise.relay.client_tools import PlainTools, callable_tools, fit_names, plain_tools
from turnwise.relay.dialects import left_out, reshaped, with_user
from turnwise.relay.edits import edited, extra_of, lowered
from turnwise.relay.foreign_fields import carry_extra
from turnwise.relay.foreign_parts import Crossing, hours
from turnwise.relay.stops import serve_stops
from turnwise.relay.stricter_apis import fit_beginning, fit_calls, fit_output, fit_settings
from turnwise.relay.terms import RouteTerms, UpstreamRequest, capped, not_carried, told_adapted
from turnwise.vocab import Caching, Repair, Request, Settings
from turnwise.wire.json_fields import Fields, is_null, is_object, read_fields, string_of
from turnwise.wire.offers import fitted_tool
from turnwise.wire.profiles import Profile
from turnwise.wire.registry import family
from turnwise.wire.relay_facts import RelayFacts, relay_facts


def translate(asked: ClientRequest, *, terms: RouteTerms, profile: Profile) -> UpstreamRequest:
    """The request as it goes to the endpoint of `profile`. Raises RequestRefused, and nothing else."""
    learned = profile.taught(terms.lessons) if terms.lessons else profile
    served = serve_stops(asked, model=terms.model or asked.request.model, profile=learned)
    way = edited if asked.asked.family == profile.family else _crossed
    found = way(served.asked, terms=terms, profile=profile)
    return replace(found, stops=served.sequences, told=(*found.told, *served.told)) if served.told else found


def _crossed(asked: ClientRequest, *, terms: RouteTerms, profile: Profile) -> UpstreamRequest:
    """The request for an endpoint of another family."""
    source, target = asked.asked.family, profile.family
    own, other = relay_facts(source), relay_facts(target)
    request = own.in_words(asked.request)
    plain = plain_tools(request) if own.has_client_tools else PlainTools(request)
    request = plain.request
    model = terms.model or request.model
    extra, told = carry_extra(request, source=source, target=target)
    request, begun_told = fit_beginning(request, field=own.history, target=target)
    crossing = Crossing(request, source=source, profile=profile)
    tools = crossing.tools()
    crossing.read_history()
    crossing.read_bare_messages(asked.fields)
    told += begun_told + crossing.told()
    cache = _caching(request, crossing)
    if cache is not None and profile.cache_way(model) == "unasked":
        field = "prompt_cache_key" if cache.key else "cache_control"
        told.append(not_carried(field, because="the upstream keeps prompts unasked, or not at all"))
        cache = None
    names = own.setting_names
    settings, settings_told = fit_settings(request.settings, names=names, target=target)
    output, output_told = fit_output(request.output, field=names["output"], target=target)
    if (most := terms.max_output_tokens) is not None and (request.settings.max_output_tokens or 0) > most:
        settings_told.append(capped(names["limit"], most))
    wanted = fit_calls(
        replace(
            crossing.without_reasoning(request),
            model=model,
            lessons=terms.lessons,
            tools=tools,
            parallel_tool_calls=False if terms.one_call_at_a_time and tools else request.parallel_tool_calls,
            output=output,
            settings=_capped(settings, terms=terms, profile=profile),
            extra=extra,
            cache=cache,
            # Nothing tells how a conversation began. No reasoning of the upstream's comes back from another family's client, so
            # a conversation from before this loses none.
            system_in_input=profile.leads_input(model),
        ),
        target=target,
    )
    wanted, uncallable = callable_tools(wanted)
    told += [left_out(name) for name in uncallable]
    fitted = fit_names(replace(plain, request=wanted), profile=profile)
    wanted = fitted.request
    if other.has_dialects:
        told += reshaped(wanted, profile.taught(terms.lessons) if terms.lessons else profile)
        wanted = with_user(wanted, profile)
    call = family(target).encode_request(wanted, profile)
    dialect = other.tool_schemas or profile.tool_schemas
    lost = {tool.name: found.lost for tool in wanted.tools if (found := fitted_tool(tool, dialect)).lost}
    told += [
        not_carried("tools.parameters", because=f"{other.title} takes no {what}")
        for what in dict.fromkeys(lost.values())
    ]
    told += settings_told + output_told
    told += told_adapted(
        [one for one in call.adapted if one.setting != "prefill"], client=source
    )  # told with the history
    named = {one.where for one in told}
    unsaid = _unsaid(wanted, asked=request, body=read_fields(call.body), names=names, target=other)
    told += [one for one in unsaid if one.where not in named]
    return UpstreamRequest(call=call, request=wanted, told=tuple(told), tools=fitted.tools)


def _capped(settings: Settings, *, terms: RouteTerms, profile: Profile) -> Settings:
    if terms.max_output_tokens is None:
        return settings
    if settings.max_output_tokens is None and (usual := profile.sent_max_tokens) is not None:
        settings = replace(settings, max_output_tokens=usual)
    return lowered(settings, most=terms.max_output_tokens)


def _caching(request: Request, crossing: Crossing) -> Caching | None:
    """The client's wish that the provider keeps the prompt: its marks, or its key."""
    extra = extra_of(request)
    marks = list(crossing.cache_marks)
    if not is_null(extra.get("cache_control")):
        marks.append(extra["cache_control"])
    key = string_of(extra, "prompt_cache_key") or ""
    lasting = string_of(extra, "prompt_cache_retention") == "24h"
    if not marks and not key and is_null(extra.get("prompt_cache_retention")):
        return None
    return Caching(hour=lasting or hours(marks), key=key)


def _unsaid(
    wanted: Request, *, asked: Request, body: Fields, names: Mapping[str, str], target: RelayFacts
) -> list[Repair]:
    """The settings that the encoded body does not have, though the client said them."""
    told: list[Repair] = []
    for setting in _said(wanted, asked=asked, has_tools="tools" in body):
        if not any(_stands(body, place) for place in target.places.get(setting, ())):
            because = f"{target.title}, or this endpoint of it, does not take it here"
            if setting == "output":
                because = "the endpoint takes no schema, the model is told in words"
            told.append(not_carried(names[setting], because=because))
    return told


def _said(request: Request, *, asked: Request, has_tools: bool) -> list[str]:
    settings = request.settings
    forbids_by_leaving_out = request.tool_choice == "none" and bool(request.tools) and not has_tools
    thinks = settings.reasoning_tokens is not None or settings.reasoning_effort not in (None, "none")
    said = {
        "temperature": settings.temperature is not None,
        "top_p": settings.top_p is not None,
        "stop": bool(settings.stop),
        "seed": settings.seed is not None,
        "reasoning": thinks,
        "tool_choice": request.tool_choice != "auto" and not forbids_by_leaving_out,
        "parallel": asked.parallel_tool_calls is False,
        "output": request.output is not None,
    }
    return [name for name, is_said in said.items() if is_said]


def _stands(fields: Fields, place: str) -> bool:
    key, _, below = place.partition(".")
    raw = fields.get(key)
    if raw is None or is_null(raw):
        return False
    return not below or (is_object(raw) and _stands(read_fields(raw), below))
