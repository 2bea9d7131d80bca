"""Arguments against schemas: all errors at once, values shortened, nothing lenient."""

import pytest

from tables import each
from turnwise.rules.arguments import Sound, Unsound, judge_call, split_glued
from turnwise.rules.schema import fault_of_schema, schema_errors
from turnwise.vocab import ArgumentsState, FinishReason, ToolCall, ToolSpec

SCHEMA = """{"type":"object","required":["path","mode"],"additionalProperties":false,"properties":{
  "path":{"type":"string","minLength":2},"mode":{"enum":["r","w"]},"lines":{"type":"array","items":{"type":"integer"}},
  "at":{"anyOf":[{"type":"integer"},{"type":"null"}]},"kind":{"const":"x"}}}"""
READ = ToolSpec(name="read_file", parameters=SCHEMA)
TOOLS = {"read_file": READ, "write_file": ToolSpec(name="write_file")}


def judge(
    call: ToolCall, *, finish: FinishReason = FinishReason.STOP, limit_tokens: int | None = None
) -> Sound | Unsound:
    return judge_call(call, tools=TOOLS, finish=finish, limit_tokens=limit_tokens)


def unsound(call: ToolCall, *, finish: FinishReason = FinishReason.STOP, limit_tokens: int | None = None) -> Unsound:
    verdict = judge(call, finish=finish, limit_tokens=limit_tokens)
    assert isinstance(verdict, Unsound)
    return verdict


def test_every_error_is_told_at_once_with_path_expectation_and_what_came() -> None:
    """One round trip mends all of them; a long value is not sent back whole."""
    value = {"path": "p", "mode": "a" * 500, "lines": [1, "2"], "at": "x", "kind": "y", "extra": 1}
    assert set(schema_errors(SCHEMA, value=value)) == {
        '`$.path`: breaks `minLength` (2), got "p"',
        f'`$.mode`: expected one of ["r","w"], got "{"a" * 79}... (502 characters)',
        '`$.lines[1]`: expected integer, got "2"',
        '`$.at`: fits none of the allowed forms (`$.at`: expected integer, got "x"; `$.at`: expected null, got "x"), got "x"',
        '`$.kind`: expected "x", got "y"',
        "`$`: unexpected: `extra` (allowed: `path`, `mode`, `lines`, `at`, `kind`)",
    }
    assert schema_errors(SCHEMA, value={"lines": []}) == (
        '`$`: the property `path` is missing, got {"lines":[]}',
        '`$`: the property `mode` is missing, got {"lines":[]}',
    )


@each(
    ("schema", "value", "error"),
    [
        ('{"oneOf":[{"type":"integer"},{"minimum":1}]}', 3, "`$`: fits more than one form, got 3"),
        ('{"items":false}', [1], "`$[0]`: nothing may stand here, got 1"),
        (
            '{"propertyNames":{"maxLength":1}}',
            {"abc": 1},
            '`$`: a property\'s name `$`: breaks `maxLength` (1), got "abc"',
        ),
        ('{"uniqueItems":true}', [1, 1], "`$`: breaks `uniqueItems`, got [1,1]"),
        ('{"dependentRequired":{"a":["b"]}}', {"a": 1}, '`$`: the property `b` is missing, got {"a":1}'),
        ('{"properties":{},"additionalProperties":false}', {"a": 1}, "`$`: unexpected: `a` (none is allowed)"),
        (
            '{"patternProperties":{"^x":{}},"properties":{"b":{}},"additionalProperties":false}',
            {"a": 1},
            "`$`: unexpected: `a`",
        ),
        (
            '{"$defs":{"f":{"properties":{"c":{}},"additionalProperties":false}},"items":{"$ref":"#/$defs/f"}}',
            [{"a": 1}],
            "`$[0]`: unexpected: `a` (allowed: `c`)",
        ),
        (
            '{"allOf":[true,{"properties":{"b":{}},"additionalProperties":false}]}',
            {"a": 1},
            "`$`: unexpected: `a` (allowed: `b`)",
        ),
        ('{"unevaluatedItems":false}', [1], '`$`: breaks `unevaluatedItems` (["1"]), got [1]'),
        ('{"pattern":"^(?=(a+)+$)b"}', "a" * 40, f'`$`: breaks `pattern` ("^(?=(a+)+$)b"), got "{"a" * 40}"'),
        ('{"not":{}}', 1, "`$`: breaks `not` ({}), got 1"),
        ("false", 1, "`$`: nothing may stand here, got 1"),
    ],
)
def test_rarer_rules_have_words_too(schema: str, value: object, error: str) -> None:
    """No keyword makes the judge fail."""
    assert schema_errors(schema, value=value) == (error,)


def test_a_long_key_is_not_sent_back_whole() -> None:
    """Names and paths are the model's own text, of any length."""
    long = "k" * 9000
    assert len(schema_errors('{"additionalProperties":{"type":"integer"}}', value={long: "x"})[0]) < 400
    assert len(schema_errors('{"properties":{"a":{}},"additionalProperties":false}', value={long: "x"})[0]) < 400


def test_a_hundred_errors_are_cut_short() -> None:
    """A model mends what it can overlook."""
    errors = schema_errors(SCHEMA, value={"path": "ab", "mode": "r", "lines": ["x"] * 100})
    assert (len(errors), errors[-1]) == (21, "... and 80 more")


@pytest.mark.parametrize("schema", ['{"type":3}', "[]", "nope", '{"$ref":"http://127.0.0.1:9/x"}', '{"pattern":"("}'])
def test_an_unusable_schema_is_named_and_nothing_is_fetched(schema: str) -> None:
    """The validator would reach out for references by itself; the tests' guard against sockets would not see it."""
    assert fault_of_schema(schema) is not None


@pytest.mark.promise("cut:never-run")
@pytest.mark.parametrize(
    "arguments",
    ['{"path":"ab","mode":"r"', "{'path':1}", "{} {}", '{"path":NaN}', "", "[" * 100_000, '{"path":"\ud800"}'],
)
def test_a_complete_label_on_arguments_that_are_not_strict_json_runs_nothing(arguments: str) -> None:
    """Checked again here, whoever labelled them; no lenient parser feeds execution."""
    assert unsound(ToolCall(id="a", name="read_file", arguments=arguments)).kind == "malformed"


@pytest.mark.promise("cut:never-run", "cut:named")
def test_the_four_ways_to_miss_are_told_apart() -> None:
    """Unknown tool, truncated, malformed, mismatch: never one generic 'invalid' (opencode)."""
    kinds = [
        unsound(ToolCall(id="a", name="nope")).kind,
        unsound(ToolCall(id="a", name="read_file", state=ArgumentsState.TRUNCATED)).kind,
        unsound(ToolCall(id="a", name="read_file", state=ArgumentsState.INVALID)).kind,
        unsound(ToolCall(id="a", name="read_file")).kind,
    ]
    assert kinds == ["unknown_tool", "truncated", "malformed", "schema_mismatch"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("readFile", " Did you mean `read_file`?"),
        ("READ_FILE", " Did you mean `read_file`?"),
        ("rite_file", " Did you mean `write_file`?"),
        ("open_file", " Did you mean `read_file` or `write_file`?"),
        ("zzz", ""),
    ],
)
def test_close_tool_names_are_suggested(name: str, meant: str) -> None:
    """The model gets the names that are there."""
    text = unsound(ToolCall(id="a", name=name)).text
    assert text == f"Not run: no tool `{name}` is on offer in this step.{meant} On offer: `read_file`, `write_file`."


@pytest.mark.promise("cut:named", "cut:split")
def test_the_split_notice_names_argument_length_and_limit() -> None:
    """Which argument was cut, after how many characters, which limit; then how to go on."""
    cut = ToolCall(
        id="a",
        name="write_file",
        arguments="x" * 32_000,
        state=ArgumentsState.TRUNCATED,
        reason="cut inside the string at `$.content` after 31,900 characters",
    )
    assert unsound(cut, finish=FinishReason.LENGTH, limit_tokens=8000).text == (
        "Not run: the arguments of this call of `write_file` were cut off (cut inside the string at `$.content` after 31,900 "
        "characters; 32,000 characters of the arguments had arrived), because the response reached its limit of output "
        "tokens (8,000 tokens). Nothing was changed. The same call would be cut again. Work in smaller pieces: several calls "
        "whose arguments stay under about 16,000 characters each, for example the first part now and the rest added by later "
        "calls, one response each."
    )


@pytest.mark.promise("cut:named", "cut:split")
@pytest.mark.parametrize(
    ("arguments", "name", "words"),
    [
        ('{"path":"a"}', "append_file", 'what follows {"path":"a"} is missing'),
        ("", "append_file", "before its arguments began"),
        ("", "appen", "inside the name of its tool (`appen`)"),
        ('{"path":"a","text":"The', "append_file", "cut after 23 characters"),
    ],
)
def test_the_split_notice_goes_by_the_limit_where_little_arrived(arguments: str, name: str, words: str) -> None:
    """A size out of 26 characters says nothing; `append` is spoken of where the tool has it."""
    append = ToolSpec(name="append_file", parameters='{"type":"object","properties":{"append":{"type":"boolean"}}}')
    cut = ToolCall(id="a", name=name, arguments=arguments, state=ArgumentsState.TRUNCATED)
    found = judge_call(cut, tools={"append_file": append}, finish=FinishReason.LENGTH, limit_tokens=2000)
    assert isinstance(found, Unsound) and found.kind == "truncated"
    assert words in found.text and "stay under about 4,000 characters" in found.text
    assert ("with `append` set to true" in found.text) is (name == "append_file")


@pytest.mark.promise("cut:named", "cut:never-run")
@pytest.mark.parametrize("arguments", ["", "{}"])
@pytest.mark.parametrize(("required", "bare"), [("[]", True), ('["path"]', False)])
def test_a_call_that_may_need_no_arguments_is_told_how_to_come_again(arguments: str, required: str, bare: bool) -> None:
    """`{}` at the limit may be all there was to say: then pieces are no help, and the call is sent again alone."""
    spec = ToolSpec(name="list", parameters=f'{{"type":"object","required":{required}}}')
    cut = ToolCall(id="a", name="list", arguments=arguments, state=ArgumentsState.TRUNCATED)
    found = judge_call(cut, tools={"list": spec}, finish=FinishReason.LENGTH, limit_tokens=2000)
    assert isinstance(found, Unsound) and found.kind == "truncated"
    assert found.text.startswith("Not run: this call of `list` was cut off before its arguments began, because ")
    assert found.text.endswith(" If it was to have no arguments, send it again with nothing before it.") is bare


@pytest.mark.promise("cut:never-run")
@pytest.mark.parametrize("finish", [FinishReason.CUT, FinishReason.ERROR])
def test_a_broken_connection_is_not_the_models_mistake(finish: FinishReason) -> None:
    """It is told to send the call again, not to split it."""
    text = unsound(ToolCall(id="a", name="read_file", state=ArgumentsState.TRUNCATED), finish=finish).text
    assert "not your mistake" in text
    assert "smaller" not in text


@pytest.mark.promise("assembly:empty-then-real")
def test_glued_objects_are_split_only_if_all_fit() -> None:
    """Opaque data stays with the first; one misfit keeps the call whole."""
    good = '{"path":"ab","mode":"r"}'
    call = ToolCall(id="a", name="read_file", state=ArgumentsState.INVALID, alternatives=(good, good))
    first, second = (ToolCall(id=id, name="read_file", arguments=good) for id in ("a", "a_2"))
    assert split_glued(call, spec=READ) == (first, second)
    misfit = ToolCall(id="a", name="read_file", state=ArgumentsState.INVALID, alternatives=(good, "{}"))
    assert split_glued(misfit, spec=READ) == (misfit,)
    assert split_glued(call, spec=None) == (call,)


def test_malformed_arguments_are_shown_around_the_place_where_they_stop_being_json() -> None:
    """The beginning of a long text says nothing of its end; characters are counted, not bytes."""
    arguments = '{"content":"' + "é" * 5_000 + '", "path": nope, "rest": "' + "z" * 5_000 + '"}'
    text = unsound(ToolCall(id="a", name="read_file", arguments=arguments)).text
    assert "Around character 5,0" in text and '", "path": nope, "rest"' in text
    assert len(text) < 400
    short = unsound(ToolCall(id="a", name="read_file", arguments="{'path': 1}")).text
    assert "They began: {'path': 1}." in short
    endless = unsound(ToolCall(id="a", name="read_file", arguments='{"path":"' + "x" * 9_000)).text
    assert "They began: " in endless and len(endless) < 400


@pytest.mark.parametrize("state", [ArgumentsState.COMPLETE, ArgumentsState.INVALID])
def test_a_call_without_any_text_is_told_so(state: ArgumentsState) -> None:
    """Not 'they began:' with nothing behind it."""
    assert unsound(ToolCall(id="a", name="read_file", arguments=" ", state=state)).text == (
        "Not run: this call of `read_file` came without arguments. Send it again with one JSON object as its arguments, `{}` "
        "where it needs none."
    )


@pytest.mark.promise("cut:named")
def test_all_errors_of_a_call_together_stay_within_2_kb() -> None:
    """Each is short, and twenty long ones still are too much."""
    properties = ",".join([f'"{"k" * 150}{number}":{{"type":"integer"}}' for number in range(20)])
    tool = ToolSpec(name="t", parameters=f'{{"type":"object","properties":{{{properties}}}}}')
    arguments = "{" + ",".join([f'"{"k" * 150}{number}":"{"v" * 300}"' for number in range(20)]) + "}"
    verdict = judge_call(
        ToolCall(id="a", name="t", arguments=arguments), tools={"t": tool}, finish=FinishReason.STOP, limit_tokens=None
    )
    assert isinstance(verdict, Unsound) and verdict.kind == "schema_mismatch"
    assert len(verdict.text) < 2_200
    shown = verdict.text.count("expected integer")
    assert shown > 3 and verdict.text.endswith(f"- ... and {20 - shown} more")
