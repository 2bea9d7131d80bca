"""The mutants of a file: small changes of its code, each of which a test should notice.

The changes are mutmut's (`mutmut.mutation.mutators`), with one more: a call or an assignment to a field that is left out, because
most resets of a state are such lines. Left out are type annotations and aliases, docstrings, imports, decorators, what a class is
declared with, `__slots__`, messages to a log and messages of `TurnwiseBug`: no test should demand them. Of a string there is one
mutant in place of mutmut's three, and of the arguments that are left out or become `None` every fourth stays: they are most of
mutmut's mutants, and nearly all fail wherever their line runs, so that they would hide how well tests tell right from wrong.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from types import CodeType
from typing import NamedTuple

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

ARGUMENTS = "arg_removal"
ARGUMENTS_KEPT = 0.25
TYPE_NAME = re.compile(r"[A-Z]\w*[a-z]")
LEFT_OUT_NAMES = {"__slots__", "__all__", "__match_args__"}
NO_ARGUMENTS = {"len", "isinstance", "assert_never", "cast"}  # without their arguments they always fail
A_LOG = m.Call(func=m.Attribute(value=m.Name("log") | m.Name("logger") | m.Name("logging") | m.Name("LOG")))
A_BUG = m.Call(func=m.Name("TurnwiseBug"))
TO_DROP = (
    m.Expr(value=m.Call()) | m.Assign(targets=[m.AssignTarget(target=m.Attribute() | m.Subscript())]) | m.AugAssign()
)


class Mutant(NamedTuple):
    """One change of one file. Its text stands in `diff`: removed and added lines, without context."""

    room: str
    file: str
    function: str  # qualified name of the outermost function, or of the class; empty at the top of the module
    line: int
    kind: str  # the operator
    diff: str
    lines: tuple[int, ...]  # of the file as it is: those that change
    statement: tuple[int, ...]  # and those of the statement around them
    named: str  # the name that a line outside of any function sets
    in_body: bool  # of a function, so that a running program can take it
    first_line: int  # of that function, with its decorators
    source: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is called by, whatever lines stand above it."""
        return self.room, self.file, self.function, plain(self.diff)


class Place(NamedTuple):
    """A node and one way to change it."""

    node: cst.CSTNode
    kind: str
    number: int  # among those that the operator makes of the node
    holder: str
    named: str
    in_body: bool
    first_line: int
    line: int
    statement: tuple[int, int]


def plain(diff: str) -> str:
    """A diff with its lines stripped, so that an indentation makes no difference."""
    return "\n".join([line[:1] + line[1:].strip() for line in diff.strip().splitlines()])


def dropped(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    if isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1 and m.matches(node.body[0], TO_DROP):
        yield node.with_changes(body=[cst.Pass()])


def ways(node: cst.CSTNode) -> Iterator[tuple[str, int, cst.CSTNode]]:
    """All changes of a node: the operator's name, a number, and the changed node."""
    for kind, operator in mutation_operators:
        if isinstance(node, kind):
            name = operator.__name__.removeprefix("operator_")
            for number, changed in enumerate(operator(node)):
                if name == "string" and number:
                    break
                yield name, number, changed
    for changed in dropped(node):
        yield "drop", 0, changed


class Visitor(cst.CSTVisitor):
    """Collects the places of a module."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.places: list[Place] = []
        self.holders: list[str] = []
        self.bodies: list[cst.CSTNode] = []  # of the functions around
        self.entered: list[cst.CSTNode] = []
        self.first_line = 0
        self.named = ""
        self.statement = (0, 0)
        self.left_out: set[cst.CSTNode] = set()

    def on_visit(self, node: cst.CSTNode) -> bool:
        if node in self.left_out or self._leave_out(node):
            return False
        position = self.get_metadata(PositionProvider, node, None)
        if isinstance(node, (cst.SimpleStatementLine, cst.BaseCompoundStatement)) and position is not None:
            end = position.end.line if isinstance(node, cst.SimpleStatementLine) else position.start.line
            self.statement = (position.start.line, end)
            if not self.bodies:
                self.named = name_set(node)
        match node:
            case cst.FunctionDef():
                if not self.bodies:
                    above = [self.get_metadata(PositionProvider, one).start.line for one in node.decorators]
                    self.first_line = min([*above, position.start.line])
                    self.holders.append(node.name.value)
                self.left_out.update(node.decorators)
            case cst.ClassDef() if not self.bodies:
                self.holders.append(node.name.value)
                self.left_out.update([*node.decorators, *node.bases, *node.keywords])
            case cst.IndentedBlock() if self.entered and isinstance(self.entered[-1], cst.FunctionDef):
                self.bodies.append(node)
            case _:
                pass
        self.entered.append(node)
        self._collect(node, line=position.start.line if position is not None else self.statement[0])
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if not self.entered or self.entered[-1] is not original_node:
            return
        self.entered.pop()
        if self.bodies and self.bodies[-1] is original_node:
            self.bodies.pop()
        if isinstance(original_node, (cst.FunctionDef, cst.ClassDef)) and not self.bodies:
            self.holders.pop()

    def _collect(self, node: cst.CSTNode, *, line: int) -> None:
        if m.matches(node, A_BUG) or (isinstance(node, cst.Call) and called(node) in NO_ARGUMENTS):
            return
        for kind, number, _ in ways(node):
            if kind == "drop" and not self.bodies:
                continue
            in_body = bool(self.bodies)
            holder = ".".join(self.holders)
            place = Place(node, kind, number, holder, self.named, in_body, self.first_line, line, self.statement)
            self.places.append(place)

    def _leave_out(self, node: cst.CSTNode) -> bool:
        match node:
            case cst.Annotation() | cst.Import() | cst.ImportFrom() | cst.TypeAlias():
                return True
            case cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString()):
                return True
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))]):
                return name in LEFT_OUT_NAMES or (not self.holders and TYPE_NAME.fullmatch(name) is not None)
            case cst.Raise(exc=cst.Call() as call) if m.matches(call, A_BUG):
                return True
            case _:
                return m.matches(node, A_LOG)


def called(node: cst.Call) -> str:
    return node.func.value if isinstance(node.func, cst.Name) else ""


def name_set(node: cst.CSTNode) -> str:
    match node:
        case cst.SimpleStatementLine(body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))])]):
            return name
        case cst.SimpleStatementLine(body=[cst.AnnAssign(target=cst.Name(value=name))]):
            return name
        case cst.FunctionDef(name=cst.Name(value=name)):
            return name
        case _:
            return ""


def drawn(sources: Sequence["Source"], *, seed: int) -> list[tuple["Source", Place]]:
    """All places of the files in an order that the seed gives: a larger sample begins with the smaller one."""
    chance = Random(seed)
    places = [(source, place) for source in sources for place in source.places]
    chance.shuffle(places)
    return [one for one in places if one[1].kind != ARGUMENTS or chance.random() < ARGUMENTS_KEPT]


class Source:
    """A file that was read, and the mutants of it."""

    def __init__(self, file: Path, *, room: str, root: Path) -> None:
        self.room = room
        self.file = str(file.relative_to(root))
        self.text = file.read_text()
        wrapper = MetadataWrapper(cst.parse_module(self.text))
        visitor = Visitor()
        self.module = wrapper.visit(visitor)
        self.places = visitor.places
        self.code = compile(self.text, self.file, "exec")

    def mutant(self, place: Place) -> Mutant | None:
        """The mutant of a place; None where it is no other program, or none at all."""
        [changed] = [one for kind, number, one in ways(place.node) if (kind, number) == (place.kind, place.number)]
        replaced = self.module.deep_replace(place.node, changed)
        assert isinstance(replaced, cst.Module)
        source = replaced.code
        try:
            code = compile(source, self.file, "exec")
        except SyntaxError:
            return None
        if same_code(code, self.code):
            return None
        diff, lines = difference(self.text, source)
        line = lines[0] if lines else place.line
        around = tuple(range(place.statement[0], place.statement[1] + 1))
        return Mutant(
            room=self.room,
            file=self.file,
            function=place.holder,
            line=line,
            kind=place.kind,
            diff=diff,
            lines=lines,
            statement=around,
            named=place.named,
            in_body=place.in_body,
            first_line=place.first_line,
            source=source,
        )


def difference(before: str, after: str) -> tuple[str, tuple[int, ...]]:
    """Removed and added lines, and the numbers of those that were removed."""
    old, new = before.splitlines(), after.splitlines()
    shown: list[str] = []
    lines: list[int] = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            shown += [f"-{line}" for line in old[a:b]] + [f"+{line}" for line in new[c:d]]
            lines += range(a + 1, b + 1)
    return "\n".join(shown), tuple(lines)


def same_code(one: CodeType, other: CodeType) -> bool:
    """Whether both run alike: their bytes and constants are equal, wherever their lines stand."""
    if one.co_code != other.co_code or one.co_names != other.co_names or one.co_varnames != other.co_varnames:
        return False
    return len(one.co_consts) == len(other.co_consts) and all(
        same_code(mine, its) if isinstance(mine, CodeType) and isinstance(its, CodeType) else same_constant(mine, its)
        for mine, its in zip(one.co_consts, other.co_consts, strict=True)
    )


def same_constant(one: object, other: object) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)
