"""A shell script -> every simple command in it, however it is wrapped, quoted or nested."""

import os
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from turnwise.base.programs import ProgramSearch
from turnwise.rules.permission_facts import (
    IN_SHELL,
    MOVING,
    Access,
    Assignment,
    CommandFact,
    PathFact,
    ShellFacts,
    Word,
)
from turnwise.rules.read_only_commands import READING_NAMES
from turnwise.tools.shell_judge import grammar as arithmetic
from turnwise.tools.shell_judge import repositories, wrappers
from turnwise.tools.shell_judge import word_paths as arguments
from turnwise.tools.shell_judge import word_paths as bounds
from turnwise.tools.shell_judge.grammar import LEAVES, TRANSPARENT, heredoc_delimiter, heredoc_text, parse
from turnwise.tools.shell_judge.paths import HARMLESS_DEVICES, Paths, search_of
from turnwise.tools.shell_judge.word_paths import (
    SHOWN_CHARS,
    Places,
    Stand,
    WordPaths,
    filled_in,
    joined,
    mark_absences,
    moved,
)
from turnwise.tools.shell_judge.word_spelling import (
    Spelled,
    is_quoted,
    spell,
    spell_command,
    spell_words,
    words_below,
)
from turnwise.tools.shell_judge.wrappers import may_run, program_of, supposed

if TYPE_CHECKING:
    from tree_sitter import Node

# One redirection of a script: what it opens, which descriptor it sets, and the arguments of the command that stand behind it.


# Whether a command of a script has an input: text of the script, a file or a pipe, which the command's words do not show.
_REDIRECTS = frozenset({"heredoc_redirect", "herestring_redirect", "file_redirect"})


def is_fed(node: "Node") -> bool:
    """Whether the command, or anything around it, gets another standard input. Says so rather once too often."""
    if any(_reads(child) for child in node.children):
        return True
    while node.parent is not None:
        inner, node = node, node.parent
        if node.type == "pipeline" and node.children[0].id != inner.id:
            return True
        if node.type == "heredoc_redirect":  # `cat <<E | python3`
            return True
        if node.type == "redirected_statement" and any(_reads(child) for child in node.children):
            return True
    return False


def lasts(text: str) -> bool:
    """Whether the input may be that of all further commands: `exec <x`."""
    return re.search(r"exec", re.sub(r"['\"\\]", "", text)) is not None


def _reads(redirect: "Node") -> bool:
    if redirect.type not in _REDIRECTS:
        return False
    return any(child.type in INPUT or child.text == b"0" for child in redirect.children)


_OPENING = frozenset({"<", ">", ">>", "&>", "&>>", "<&", ">&", ">|"})
_CLOSING = frozenset({"<&-", ">&-"})
INPUT = frozenset({"<", "<&", "<&-", "<<", "<<-", "<<<", "<>"})
# `{name}>file` sets a variable; `"a"2>file` is the word `a2`, not a descriptor. The grammar takes `{name}`, and a number behind
# `<<<x`, for words.
_NAMED_DESCRIPTOR = re.compile(r"(?:\{[A-Za-z_]\w*(?:\[[^]]*\])?\}|(?<![^ \t\n])\d+)\Z")
_BEFORE_DESCRIPTOR = " \t\n;|&()<>"


class RedirectionFacts(msgspec.Struct, kw_only=True):
    """What redirections come to: files, the literal text of standard input, further arguments, what runs after the command."""

    paths: list[PathFact] = []
    stdin: str | None = None
    words: "list[Node]" = []
    later: "list[Node]" = []


class Redirect(msgspec.Struct, frozen=True, kw_only=True):
    """`target` is what the redirection opens, None where it opens nothing or holds its text itself. In the grammar all words
    behind the operator are its own (`cat <a b`); for bash those after the first (`words`) are arguments of the command."""

    operator: str
    sets_input: bool
    target: "Node | None" = None
    words: "tuple[Node, ...]" = ()


def read_redirect(node: "Node") -> Redirect | None:
    """None where it is not understood."""
    operator = next((child.type for child in node.children if not child.is_named), "")
    descriptor = _node_text(node.child_by_field_name("descriptor"))
    sets_input = descriptor == "0" or (not descriptor and operator in INPUT)
    if not _stands_alone(node, descriptor=descriptor):
        return None
    if node.type != "file_redirect":
        return Redirect(operator=operator, sets_input=sets_input)
    words = node.children_by_field_name("destination")
    if any(one.end_byte >= after.start_byte for one, after in pairwise(words)):
        return None  # `>a<(b)` is one word for bash
    if operator in _OPENING and words:
        return Redirect(operator=operator, sets_input=sets_input, target=words[0], words=tuple(words[1:]))
    if operator in _CLOSING and not any(one.start_byte == node.start_byte + len(descriptor) + 3 for one in words):
        return Redirect(operator=operator, sets_input=sets_input, words=tuple(words))
    return None


def _stands_alone(node: "Node", *, descriptor: str) -> bool:
    """Whether bash begins a redirection at the same place: the text before it belongs to no descriptor."""
    before = _before(node)
    if descriptor and before and before[-1] not in _BEFORE_DESCRIPTOR:
        return False
    return _NAMED_DESCRIPTOR.search(before) is None


def _before(node: "Node") -> str:
    """The text of the line before the node, as far as its neighbours hold it."""
    previous = node.prev_sibling or (node.parent.prev_sibling if node.parent is not None else None)
    if previous is None or previous.end_byte != node.start_byte:
        return ""
    return _node_text(previous)


def _node_text(node: "Node | None") -> str:
    return (node.text or b"").decode("utf-8", "replace") if node is not None else ""


# Their meaning is built into this reading; a function of that name would change it. The last one runs for each name that leads to
# no program (bash manual, Command Search and Execution).
_BUILT_IN = (
    IN_SHELL | READING_NAMES | frozenset(wrappers.PREFIXES) | wrappers.SHELLS | {"alias", "command_not_found_handle"}
)
# Behind `||` it leaves the shell for sure: `exit` alone, or after saying why. With more words than one it may go on.
_LEAVES = re.compile(
    r"""exit(?:[ ][0-9]{1,3})? | \{ \s+ (?: (?:>&2[ ])? (?:echo|printf) (?: [ ]+ (?: '[^']*' | "[^"$`\\!]*" | [\w.,/:=-]+ ) )*
    (?:[ ]+>&2)? \s* [;\n] \s* )* exit (?:[ ][0-9]{1,3})? \s* ;? \s* \}""",
    re.VERBOSE,
)
_ASSIGNS = re.compile(r"[A-Za-z_]\w*(?:\[.*\])?\+?=", re.DOTALL)
_TESTS = frozenset({"test", "["})
_SEQUENCES = frozenset({"list", "pipeline", "negated_command"})
_CONDITIONAL = frozenset("if_statement while_statement case_statement for_statement c_style_for_statement".split())
_NO_FUNCTIONS = frozenset({"command", "builtin"})  # a name behind them is no function


def inspect_script(
    script: str,
    *,
    paths: Paths,
    programs: ProgramSearch | None = None,
    environment: Collection[str] = (),
    git_doubt: str = "",
) -> ShellFacts:
    """What bash would run of `script` in the workspace. `programs` says where the names of commands lead (else our own PATH
    does); `environment` are the names of the variables that it inherits; `git_doubt` says why its git may do more than it says.
    Runs nothing."""
    if len(script) > bounds.MAX_SCRIPT_CHARS:
        return ShellFacts(
            parsed=False, problem=f"it has {len(script):,} characters, more than {bounds.MAX_SCRIPT_CHARS:,}"
        )
    programs = programs or ProgramSearch(os.environ.get("PATH"), workspace=paths.workspace)
    walk = _Walk(paths, programs=programs, environment=environment, git_doubt=git_doubt)
    try:
        walk.script(script, within=())
        walk.mark_recursions()
    except bounds.TooMuch as error:
        walk.problem = str(error)
    facts = mark_absences((*walk.facts, *dict.fromkeys(walk.supposed)))
    problem, mixed = walk.problem, programs.are_mixed
    plain = walk.is_plain and not problem
    return ShellFacts(commands=facts, parsed=not problem, problem=problem, mixed_path=mixed, plain=plain)


_PLAIN_WORDS = frozenset("command_name word raw_string string number concatenation".split())


def _is_plain(root: "Node", *, text: str) -> bool:
    """Whether the script is the words of one command: nothing before, behind or around them."""
    only = root.children[0] if len(root.children) == 1 else None
    if only is None or only.type != "command" or root.has_error or "{" in text:
        return False
    is_all = only.text == text.strip(" \t\n").encode("utf-8", "surrogatepass")
    return is_all and all(child.type in _PLAIN_WORDS for child in only.children)


class _Walk:
    def __init__(self, paths: Paths, *, programs: ProgramSearch, environment: Collection[str], git_doubt: str) -> None:
        self.paths = paths
        self.programs = programs
        self.cdpath = "CDPATH" in environment
        self.environment = frozenset(environment) - {"_"}
        self.git_doubt = git_doubt
        self.repositories: dict[str, repositories.Repository] = {}  # by place
        self.facts: list[CommandFact] = []
        self.problem = ""
        self.places: Places = (paths.workspace,)
        self.arrived: Places = None  # where one stands if the last statement succeeds; None: in `places`
        self.linked = paths.is_linked or "PWD" in environment
        self.unconditional = True
        self.repeating = 0
        self.functions: dict[str, set[str]] = {}  # the names of the commands in each
        self.guessing = False
        self.guesses = 0
        self.fed = False
        self.supposing: int = 0
        self.supposed: list[CommandFact] = []
        self.words = WordPaths(paths)
        self.depth = 0
        self.nested = 0
        self.is_plain = False
        self.trailing: dict[int, tuple[Node, ...]] = {}  # by node: the redirections behind the statement that it ends

    # scripts and nodes

    def script(self, text: str, *, within: tuple[str, ...]) -> None:
        if self.nested >= bounds.MAX_SCRIPTS:
            raise bounds.TooMuch("scripts are nested too deep in it")
        root, problem = parse(text)
        self._doubt(problem)
        if wrappers.is_read_otherwise(text, within=within):
            self._doubt("`sh` may not read it as bash does")
        if root is None:
            return
        if not within and not self.nested:
            self.is_plain = _is_plain(root, text=text)
        self.nested += 1
        self.visit(root, within=within)
        self.nested -= 1

    def visit(self, node: "Node", *, within: tuple[str, ...]) -> None:
        if self.depth >= bounds.MAX_DEPTH:
            raise bounds.TooMuch("it is nested too deep")
        self.depth += 1
        before = self.unconditional
        self.unconditional = before and node.type not in _CONDITIONAL
        self._visit(node, within=within)
        if node.type not in ("command", "list"):
            self.arrived = None
        self.unconditional = before
        self.depth -= 1

    def _visit(self, node: "Node", *, within: tuple[str, ...]) -> None:
        if arithmetic.is_arithmetic(node):
            self._arithmetic(node, within=within)
        if node.type not in ("command", "redirected_statement", "function_definition") and node.id in self.trailing:
            self._around(node, redirects=self.trailing.pop(node.id), within=within)
            return
        match node.type:
            case "command":
                self._command(node, within=within)
            case "redirected_statement":
                self._redirected(node, within=within)
            case "heredoc_redirect" | "file_redirect" | "herestring_redirect":
                self._around(None, redirects=(node,), within=within)
            case "list":
                self._list(node, within=within)
            case "pipeline" | "subshell" | "command_substitution" | "process_substitution":
                self._apart(node, within=within)
            case "variable_assignment":
                self._emit_assignment(node, within=within)
            case "declaration_command" | "unset_command":
                self._declaration(node, within=within)
            case "function_definition":
                self._function(node, within=within)
            case "for_statement" | "while_statement" | "c_style_for_statement":
                self._loop(node, within=within)
            case "expansion":
                self._expansion(node, within=within)
            case "simple_expansion" | "subscript" | "arithmetic_expansion" | "compound_statement":
                self._children(node, within=within)
            case "test_command":
                self._test(node, within=within)
            case "array":
                self._children(node, within=within)
                self._names_shown(node.named_children, text=_text(node), within=within)
            case kind if kind in TRANSPARENT or kind in LEAVES:
                self._children(node, within=within)
            case kind:
                self._doubt(f"`{kind}` is not understood")
                self._children(node, within=within)

    def _doubt(self, problem: str) -> None:
        self.problem = self.problem or problem

    def _children(self, node: "Node", *, within: tuple[str, ...]) -> None:
        children = node.children
        for at, child in enumerate(children):
            if child.is_named:
                # What `&` sends to the background runs in a shell of its own, and beside the rest.
                apart = at + 1 < len(children) and children[at + 1].type == "&"
                places = self.places
                if apart:
                    self._piles_up(child, within=within)
                self.visit(child, within=within)
                if apart:
                    self.places = places

    def _piles_up(self, node: "Node", *, within: tuple[str, ...]) -> None:
        """What does not end before the next one begins, where there may be any number of them."""
        if self.repeating:
            self._emit(CommandFact(words=(Word("&"),), text=f"{_text(node)} &", within=within))

    def _apart(self, node: "Node", *, within: tuple[str, ...]) -> None:
        """In shells of their own: a `cd` there ends with them."""
        places = self.places
        if node.type == "process_substitution":
            self._piles_up(node, within=within)
        if node.type == "pipeline":
            for child in node.children:
                if child.is_named:
                    self.visit(child, within=within)
                    self.places = places
        else:
            self._children(node, within=within)
        self.places = places

    def _list(self, node: "Node", *, within: tuple[str, ...]) -> None:
        """`a && b`: the first runs as the list does, the second perhaps. Behind `cd x &&` and `cd x || exit` one stands in `x`
        alone."""
        parts = [child for child in node.children if child.type != "comment"]
        if len(parts) != 3:
            self._doubt("`list` is not understood")
            self._children(node, within=within)
            return
        left, sign, right = parts
        started = self.places
        self.visit(left, within=within)
        places = self.places
        ends = sign.type == "||" and right.id not in self.trailing and _LEAVES.fullmatch(_text(right)) is not None
        ends = ends and self.unconditional  # else what comes after it may stand where this began
        if ends and left.type != "negated_command":
            places = self.arrived or places
        before, self.unconditional = self.unconditional, False
        failed = sign.type == "||" or left.type == "negated_command"
        self.places = joined(started, self.places) if failed else self.arrived or places
        self.visit(right, within=within)
        self.unconditional = before
        self.arrived = None if failed else self.arrived or self.places
        self.places = places if ends else joined(self.places, places)

    def _loop(self, node: "Node", *, within: tuple[str, ...]) -> None:
        """A `cd` in a loop counts for what stands before it, too, from the second round on."""
        places = self.places
        names = [child for child in node.children if child.type == "variable_name"]
        for name in names:
            values = tuple(word for value in node.children_by_field_name("value") for word in spell_words(value))
            self.words.keep_values(_text(name), values=values, places=self.places)
            self._names_shown(node.children_by_field_name("value"), text=_text(node), within=within)
            set_here = (Assignment(_text(name), "", False),)
            self._emit(CommandFact(words=(), text=_text(node), assignments=set_here, within=within))
        count = len(self.facts)
        self.repeating += 1
        self._children(node, within=within)
        if self.places != places:
            del self.facts[count:]
            self.places = None
            self._children(node, within=within)
        self.repeating -= 1

    def _function(self, node: "Node", *, within: tuple[str, ...]) -> None:
        name = next((_text(child) for child in node.children if child.type == "word"), "")
        if name.replace("\\", "") in _BUILT_IN or "\\" in name:
            self._emit(
                CommandFact(words=(), text=_text(node), within=within, opaque=f"`{name}` is given another meaning")
            )
        places, self.places = self.places, None  # it runs where it is called
        self._around(None, redirects=self.trailing.pop(node.id, ()), within=within)
        count = len(self.facts)
        self.repeating += 1
        for child in node.children:
            if child.type != "word" and child.is_named:
                self.visit(child, within=within)
        self.repeating -= 1
        called = {
            fact.words[0].text
            for fact in self.facts[count:]
            if fact.words and _NO_FUNCTIONS.isdisjoint(fact.within[-1:])
        }
        self.functions.setdefault(name, set()).update(called)
        moved = any(fact.words and fact.words[0].text in MOVING for fact in self.facts)
        self.places = None if moved else places

    def mark_recursions(self) -> None:
        """A function that calls itself, by itself or by others, makes processes without end."""
        for name in self.functions:
            reached, waiting = set[str](), [name]
            while waiting:
                new = self.functions.get(waiting.pop(), set()) - reached
                reached |= new
                waiting += new
            if name in reached:
                self._emit(CommandFact(words=(), text=f"{name}()", opaque=f"the function `{name}` calls itself"))

    def _arithmetic(self, node: "Node", *, within: tuple[str, ...]) -> None:
        """Arithmetic evaluates the text of its variables: one that holds `a[$(rm x)]` runs it (bash manual, Shell Arithmetic)."""
        if node.type == "compound_statement" or any(arithmetic.names_variables(child) for child in node.children):
            self._emit_unknown("((", _text(node), within=within)

    def _expansion(self, node: "Node", *, within: tuple[str, ...]) -> None:
        text = _text(node)
        if "@" in [child.type for child in node.children[1:]] or re.fullmatch(r"\$\{.*@\w\}", text, re.DOTALL):
            self._emit(
                CommandFact(words=(), text=text, within=within, opaque="`${..@..}` may run what a variable holds")
            )
        elif not arithmetic.expands_plainly(text):
            self._emit_unknown("((", text, within=within)
        if any(child.type in ("=", ":=") for child in node.children):
            name = next((_text(child) for child in node.children if child.type == "variable_name"), "")
            self._emit(CommandFact(words=(), text=text, assignments=(Assignment(name, "", False),), within=within))
        self._children(node, within=within)

    def _test(self, node: "Node", *, within: tuple[str, ...]) -> None:
        """`-eq` and its like are arithmetic, `-v` and `-R` read a subscript. In single brackets an operator may come from a
        variable, and `>` opens a file."""
        text = _text(node)
        single = node.children[0].type == "["
        if single and (arithmetic.calculates(node) or re.search(r"[<>;&|()\n]", text)):
            self._doubt("operators in single brackets are not understood")
        for child in node.children:
            self._evaluated(child, within=within)
        if single:
            self._names_shown(words_below(node), text=text, within=within)
        dynamic = single and re.search(r"[$`]", text) is not None
        if dynamic or arithmetic.tests_arithmetic(text):
            self._emit_unknown("[[", text, within=within)
        self._children(node, within=within)

    def _names_shown(self, nodes: "Iterable[Node]", *, text: str, within: tuple[str, ...]) -> None:
        """A glob reads the folder that it looks in, though nothing is done with the names. `$X` may hold one."""
        for node in nodes:
            for word in spell_words(node):
                if word.is_glob or not (word.literal or is_quoted(node)):
                    shown = (Word("["), self._word(word, operand=word.literal), Word("]"))
                    self._emit(CommandFact(words=shown, text=text, within=within))

    def _evaluated(self, node: "Node", *, within: tuple[str, ...]) -> None:
        """Quoted text that arithmetic would evaluate may hold a substitution."""
        if node.type in ("raw_string", "ansi_c_string"):
            self._carried(wrappers.evaluated((spell(node),)), within=(*within, "[["), text=_text(node))
        for child in node.children:
            if node.type in ("binary_expression", "unary_expression", "parenthesized_expression", "concatenation"):
                self._evaluated(child, within=within)

    # simple commands

    def _command(self, node: "Node", *, within: tuple[str, ...]) -> None:
        words: list[Node] = []
        assignments: list[Assignment] = []
        redirects: list[Node] = []
        for at, child in enumerate(node.children):
            match node.field_name_for_child(at):
                case "redirect":
                    redirects.append(child)
                case "name" | "argument" if child.is_named and child.text:
                    words.append(child)
                case None if child.type == "variable_assignment":
                    assignments += self._assignment(child, within=within)
                case None if child.type == "comment":
                    pass
                case _:
                    self._doubt(f"`{child.type}` in a command is not understood")
        redirects += self.trailing.pop(node.id, ())
        if words and _ASSIGNS.match(_text(words[0])):
            self._doubt("an assignment is not understood")  # the grammar takes `_=x` for a command
        for word in words:
            self.visit(word, within=within)
        opened = self._redirections(redirects, within=within)
        before, self.fed = self.fed, self.fed or is_fed(node)
        surely, self.unconditional = self.unconditional, self.unconditional and not redirects
        self._run(
            tuple(self._filled(word, within=within) for word in spell_command((*words, *opened.words))),
            assignments=tuple(assignments),
            redirections=tuple(opened.paths),
            stdin=opened.stdin,
            within=within,
            text=_text(node) + "".join(f" {_text(word)}" for word in opened.words),
        )
        self.unconditional = surely
        self.fed = before or (self.fed and lasts(_text(node)))
        self._later(opened.later, within=within)

    def _run(
        self,
        words: wrappers.CommandWords,
        *,
        within: tuple[str, ...],
        text: str,
        stdin: str | None = None,
        assignments: tuple[Assignment, ...] = (),
        redirections: tuple[PathFact, ...] = (),
    ) -> None:
        carried = wrappers.unwrap(words, stdin=stdin)
        name = words[0].text if words and words[0].literal else ""
        known = tuple(self._word(word, operand=at > 0) for at, word in enumerate(words))
        if name in _TESTS:  # that a file is there may be asked, as in `[[ -f x ]]`
            known = tuple(word if word.glob else msgspec.structs.replace(word, paths=()) for word in known)
        program = program_of(words, programs=self.programs, within=within, places=self.places)
        search = search_of(words, environment=self.environment)
        reached = self._reached(name, words=words[1:])
        passed_on = (*assignments, *(arguments.assigned(word) for word in carried.sets))
        sets = (*arguments.exported(passed_on), *arguments.set_by(name, words=words))
        self._emit(
            CommandFact(
                words=known if search is None else tuple(self.words.searched(word, search=search) for word in known),
                text=text[:SHOWN_CHARS],
                assignments=sets,
                redirections=redirections,
                within=within,
                carries=carried.carries,
                guessed=self.guessing,
                opaque=carried.opaque or program.opaque,
                doubt=self._git_doubt(known) or program.doubt or reached.doubt,
                programs=program.names,
                place_holds="" if search is None else self.words.held(self.places, search=search),
            )
        )
        self.places, self.linked = reached.places, reached.linked
        self._carried(carried, within=(*within, name), text=text)
        self._suppose(words, within=(*within, name), text=text)
        self.arrived = reached.arrived if name == "cd" else None

    def _carried(self, carried: wrappers.WrappedCommands, *, within: tuple[str, ...], text: str) -> None:
        places = self.places
        if carried.moves:
            self.places = None
        self.repeating += within[-1] == "trap"
        for inner in carried.commands:
            self._run(inner, within=within, text=text)
        for script in carried.scripts:
            self.script(script, within=within)
        if self.guesses < bounds.MAX_GUESSES_NESTED:
            before, self.guessing = self.guessing, True
            self.guesses += 1
            for inner in carried.guesses:
                self._run(inner, within=within, text=text)
            for script in carried.guessed_scripts:
                self.script(script, within=within)
            self.guesses -= 1
            self.guessing = before
        elif carried.guesses or carried.guessed_scripts:
            self._doubt("commands are nested too deep in it")
        self.repeating -= within[-1] == "trap"
        if within[-1] == "time":  # a word of the shell's, or a program
            self.places = places if self.places == places else None
        elif within[-1] not in MOVING and within[-1] not in ("eval", "command", "builtin"):
            self.places = places

    def _suppose(self, words: wrappers.CommandWords, *, within: tuple[str, ...], text: str) -> None:
        """What a program that is not known may run. A text that is not a script runs nothing: it leaves no doubt and opens no
        file."""
        found = None if self.guessing and not self.supposing else may_run(words)
        if found is None or self.supposing > 1:
            return
        self.supposed += [msgspec.structs.replace(one, text=text, within=within) for one in found.commands]
        guessing, supposing, problem, places, count = (
            self.guessing, self.supposing, self.problem, self.places, len(self.facts),
        )  # fmt: skip
        for script in found.scripts:
            self.guessing, self.supposing = True, 1 if found.is_shell else 2
            self.script(script, within=within)
            self.supposed += supposed(self.facts[count:])
            del self.facts[count:]
            self.guessing, self.supposing, self.problem, self.places = guessing, supposing, problem, places
        if len(self.supposed) > bounds.MAX_SUPPOSED:
            raise bounds.TooMuch("it has too many words that may be commands")

    def _git_doubt(self, words: tuple[Word, ...]) -> str:
        if not words or not words[0].literal or words[0].text.rpartition("/")[2] != "git":
            return ""
        if self.git_doubt or self.places is None:
            return self.git_doubt or "in which repository it runs is not known"
        for place in self.places:
            if place not in self.repositories:
                if len(self.repositories) >= bounds.MAX_SEARCHES:
                    raise bounds.TooMuch("it uses git in too many folders")
                self.repositories[place] = repositories.find_repository(place)
            found = self.repositories[place]
            doubt = found.doubt or repositories.reach_doubt(words, repository=found, place=place, paths=self.paths)
            if doubt:
                return doubt
        return ""

    def _emit_unknown(self, mark: str, text: str, *, within: tuple[str, ...] = ()) -> None:
        """A construct of the shell whose text may run, read or show something unknown."""
        self._emit(CommandFact(words=(Word(mark), Word(text, literal=False)), text=text, within=within))

    def _emit(self, fact: CommandFact) -> None:
        if len(self.facts) >= bounds.MAX_COMMANDS:
            raise bounds.TooMuch(f"it has more than {bounds.MAX_COMMANDS} commands")
        if self.guessing and fact.words and not fact.words[0].literal:
            return
        assignments = arguments.exported(fact.assignments, names=self.environment)
        text, places = fact.text[:SHOWN_CHARS], () if self.places == (self.paths.workspace,) else self.places or ("",)
        fact = msgspec.structs.replace(fact, guessed=self.guessing, text=text, fed=self.fed, places=places)
        self.facts.append(msgspec.structs.replace(fact, assignments=assignments))

    # folders

    def _reached(self, name: str, *, words: wrappers.CommandWords) -> Stand:
        stand = Stand(self.places, linked=self.linked)
        if name not in MOVING:
            return stand
        return moved(
            words,
            stand=Stand(None) if name != "cd" or self.cdpath else stand,
            surely=self.unconditional,
            look_up=lambda text, place, tilde: self.words.look_up(text, place=place, tilde=tilde),
            may_enter=self.paths.may_enter,
        )

    # paths

    def _filled(self, word: Spelled, *, within: tuple[str, ...]) -> Spelled:
        return filled_in(word, private=self.paths.private, within=within)

    def _word(self, word: Spelled, *, operand: bool) -> Word:
        return self.words.word(word, places=self.places, operand=operand)

    # redirections and assignments

    def _redirected(self, node: "Node", *, within: tuple[str, ...]) -> None:
        """The redirections behind `a && b | c` are those of `c`, and are opened where it runs."""
        redirects = (*node.children_by_field_name("redirect"), *self.trailing.pop(node.id, ()))
        body = node.child_by_field_name("body")
        if body is None:
            self._around(None, redirects=redirects, within=within)
            return
        owner = body
        while owner.type in _SEQUENCES:
            owner = [child for child in owner.children if child.is_named and child.type != "comment"][-1]
        self.trailing[owner.id] = redirects
        self.visit(body, within=within)
        if self.trailing.pop(owner.id, None) is not None:
            self._doubt("a redirection is not understood")

    def _around(self, node: "Node | None", *, redirects: "Sequence[Node]", within: tuple[str, ...]) -> None:
        """Redirections of what is no simple command, or of nothing: no words may stand behind them."""
        opened = self._redirections(redirects, within=within)
        if opened.words:
            self._doubt("words after a redirection are not understood")
        if opened.paths:
            text = " ".join(_text(redirect) for redirect in redirects)
            self._emit(CommandFact(words=(), text=text, redirections=tuple(opened.paths), within=within))
        if node is not None:  # where one of them cannot be opened, it does not run
            surely, self.unconditional = self.unconditional, self.unconditional and not redirects
            self.visit(node, within=within)
            self.unconditional = surely
        self._later(opened.later, within=within)

    def _later(self, nodes: "list[Node]", *, within: tuple[str, ...]) -> None:
        """What stands behind a here-document's mark (`cat <<E && cd x`, `cat <<E | wc`) runs after its command, or not at all."""
        before, self.unconditional = self.unconditional, False
        for node in nodes:
            self.visit(node, within=within)
            self.arrived = None
        self.unconditional = before

    def _redirections(self, redirects: "Sequence[Node]", *, within: tuple[str, ...]) -> RedirectionFacts:
        """In the order of the text: the last one that sets standard input counts."""
        found = RedirectionFacts()
        for redirect in redirects:
            read = read_redirect(redirect)
            if read is None or found.later:
                self._doubt("a redirection is not understood")
                continue
            text: str | None = None
            match redirect.type:
                case "file_redirect":
                    if read.target is not None:
                        found.paths += self._opened(read.target, operator=read.operator, within=within)
                    for word in read.words:
                        self.visit(word, within=within)
                    found.words += read.words
                case "herestring_redirect":
                    text = self._herestring(redirect, within=within)
                case _:
                    text = self._heredoc(redirect, found=found, within=within)
            if read.sets_input:
                found.stdin = text
        return found

    def _herestring(self, redirect: "Node", *, within: tuple[str, ...]) -> str | None:
        words = [spell(child) for child in redirect.children if child.is_named and child.type != "file_descriptor"]
        text = words[0].text if words and words[0].literal else None
        if text is None:  # what it holds would be shown
            self._emit_unknown("<<<", _text(redirect), within=within)
        self._children(redirect, within=within)
        return text

    def _heredoc(self, redirect: "Node", *, found: RedirectionFacts, within: tuple[str, ...]) -> str | None:
        start = next((child for child in redirect.children if child.type == "heredoc_start"), None)
        delimiter = heredoc_delimiter(start) if start is not None else None
        body = heredoc_text(redirect)
        expands = delimiter is None or (
            not delimiter[1] and body is not None and re.search(r"[$`\\]", body) is not None
        )
        if expands:
            self._emit_unknown("<<", _text(redirect))
        inner: list[Node] = []
        for at, child in enumerate(redirect.children):
            match redirect.field_name_for_child(at):
                case "redirect":
                    inner.append(child)
                case "right":
                    found.later.append(child)
                case None if child.type == "pipeline":
                    found.later.append(child)
                case None if child.type == "heredoc_body":
                    self._children(child, within=within)
                case "argument":
                    self._doubt("words after a here-document are not understood")
                case _:
                    pass
        opened = self._redirections(inner, within=within)
        found.paths += opened.paths
        found.words += opened.words
        if any(read is None or read.sets_input for read in map(read_redirect, inner)):
            return None
        return None if expands else body

    def _opened(self, target: "Node", *, operator: str, within: tuple[str, ...]) -> list[PathFact]:
        self.visit(target, within=within)
        word = self._filled(spell(target), within=within)
        if operator in (">&", "<&") and word.literal and re.fullmatch(r"\d+-?|-", word.text):
            return []
        access: Access = "read" if operator in ("<", "<&") else "write"
        if target.type == "process_substitution":
            return []
        if word.is_glob and access == "read" and (names := self.words.matches(word, places=self.places)) is not None:
            return [self.words.look_up(name, place=place) for place, name in names]
        if not word.literal or word.is_glob or (self.places is None and not word.text.startswith(("/", "~"))):
            return [PathFact(given=word.text, access=access)]
        places = self.places or (self.paths.workspace,)
        facts = [self.words.look_up(word.text, place=place, access=access, tilde=word.has_tilde) for place in places]
        return [fact for fact in facts if fact.resolved not in HARMLESS_DEVICES]

    def _assignment(self, node: "Node", *, within: tuple[str, ...]) -> list[Assignment]:
        self._children(node, within=within)
        name = next((child for child in node.children if child.type in ("variable_name", "subscript")), None)
        value = node.child_by_field_name("value")
        spelled = spell(value) if value is not None else None
        found = arguments.NAME.match(_text(name)) if name is not None else None
        if found is None:
            self._doubt("an assignment is not understood")
            return []
        text = spelled.text if spelled else ""
        if spelled is not None:
            self.words.keep_values(found[1], values=(spelled,), places=self.places)
            self._carried(wrappers.evaluated((spelled,)), within=(*within, "declare"), text=_text(node))
        return [Assignment(found[1], text[:SHOWN_CHARS], spelled is None or spelled.literal)]

    def _emit_assignment(self, node: "Node", *, within: tuple[str, ...]) -> None:
        assignments = tuple(self._assignment(node, within=within))
        self._emit(CommandFact(words=(), text=_text(node), assignments=assignments, within=within))

    def _declaration(self, node: "Node", *, within: tuple[str, ...]) -> None:
        words = [Word(_text(node.children[0]))]
        assignments: list[Assignment] = []
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                assignments += self._assignment(child, within=within)
                words.append(Word(_text(child)[:SHOWN_CHARS], assignments[-1].literal if assignments else False))
            elif child.is_named:
                self.visit(child, within=within)
                for word in spell_words(child):
                    words.append(Word(word.text, word.literal))
                    assignments += arguments.set_by("unset", words=(word, word))
        exports = words[0].text == "export" or any(
            word.text[:1] in "-+" and "x" in word.text for word in words[1:] if word.text
        )
        refers = any(word.text.startswith("-") and "n" in word.text for word in words)
        self._emit(
            CommandFact(
                words=tuple(words),
                text=_text(node),
                assignments=arguments.exported(assignments) if exports else tuple(assignments),
                within=within,
                opaque="a name comes to stand for another variable" if refers else "",
            )
        )
        self._carried(
            wrappers.evaluated(tuple(spell(child) for child in node.children)), within=(*within, "declare"), text=""
        )


def _text(node: "Node") -> str:
    return (node.text or b"").decode("utf-8", "replace")
