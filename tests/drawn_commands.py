"""Command lines drawn from all of bash's grammar, for comparing the judge with a real bash.

Each line is drawn from a seeded random source: statements of every kind, words of every kind, redirections anywhere, and now and
then a few characters changed, where a parser and bash most easily differ. Lines end soon: no drawn loop runs for ever.
"""

import random
from collections.abc import Callable, Iterator, Sequence

from drawn_specials import special_command, special_statement, special_word

MAX_DEPTH = 3
# In the folder of `shell_watching.make_room`.
PLAIN = ["notes.txt", "src/a.py", "src", ".", "sub/x.txt", "./notes.txt", "src/../notes.txt", "inner/a.py", "no_such"]
HIDDEN = [
    ".env", "./.env", "key.pem", "leads_out", "leads_far/file.txt", "../outside/file.txt", "looks_fine.txt", "/etc/hostname",
    "~/.ssh/id_rsa", "sub/.env", "..", "/etc/os-release", "config/credentials.json",
]  # fmt: skip
TEXTS = [
    "x",
    "a b",
    "needle",
    "-n",
    "-x",
    "1",
    "0",
    "--",
    "-",
    "=",
    "a=b",
    "hello",
    "*x",
    "{}",
    "PATH",
    "-e",
    "%s",
    "two\nlines",
]
READING = [
    "cat", "cat -n", "head -n 1", "tail -n 2", "wc -l", "grep -n needle", "grep -rn needle src", "sort", "uniq", "ls", "ls -la",
    "find src -name", "find . -maxdepth 1", "stat", "cut -c 1", "nl", "tac", "rev", "md5sum", "diff notes.txt", "cmp notes.txt",
    "file", "du -s", "readlink -f", "realpath", "od -c", "fold -w 9", "paste", "comm notes.txt", "rg needle", "strings",
]  # fmt: skip
SPEAKING = [
    "echo",
    "printf '%s'",
    "true",
    ":",
    "false",
    "echo -n",
    "basename",
    "dirname",
    "type",
    "pwd -P",
    "cd src",
    "cd src || exit",
    "cd src || exit 1",
    "cd",
    "test -f",
]
WRAPPING = [
    "time", "nice", "timeout 1", "env", "command", "builtin", "exec", "nohup", "stdbuf -o0", "xargs", "bash -c", "sh -c", "eval",
    "trap", "find . -exec", "find . -maxdepth 0 -exec", "bash", "xargs -I %", "time -p", "coproc", "env -i", "source", ".",
]  # fmt: skip
CHANGING = [
    "touch made", "rm notes.txt", "tee made", "sort -o made", "mkdir made", "cp notes.txt made", "sed -i s/a/b/ notes.txt",
    "find . -delete", "find . -fprint made", "git log --output=made", "ln -s a made", "./run.sh", "uniq x made",
    "mv notes.txt made",
    "truncate -s 0 notes.txt", "chmod 777 notes.txt", "dd of=made", "git init made", "tree -o made", "install x made",
    "date -s x",
]  # fmt: skip
GIT = [
    "git status --short",
    "git log --oneline",
    "git diff --stat",
    "git branch --list",
    "git rev-parse --show-toplevel",
]
SIGNS = "+ - * / % ** == != < > <= >= << >> & | ^ && || = += -= *= /= %= <<= >>= &= ^= |=".split()
NAMES = ["A", "B", "x", "LC_ALL", "PATH", "BASH_ENV", "IFS", "FOO", "TZ", "_"]
MARKS = list(" \t\n;|&<>(){}[]$`'\"\\#!*?~=-0.,@:/ex")


class Drawer:
    """Draws lines from `seed`; the same seed gives the same lines."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.depth = 0

    def line(self) -> str:
        self.depth = 0
        text = "".join(self.statements())
        return self.changed(text) if self.chance(0.25) else text

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def one(self, *choices: str) -> str:
        return self.random.choice(choices)

    def some(self, draw: Callable[[], str], *, most: int, least: int = 0) -> list[str]:
        return [draw() for _ in range(self.random.randint(least, most))]

    def changed(self, text: str) -> str:
        """The text with a few characters put in, left out, doubled or exchanged."""
        for _ in range(self.random.randint(1, 3)):
            at = self.random.randint(0, len(text))
            match self.random.randrange(4):
                case 0:
                    text = text[:at] + self.one(*MARKS, "\\\n", " </dev/null ", "<<<x", "$(", "{fd}<") + text[at:]
                case 1:
                    text = text[:at] + text[at + 1 :]
                case 2:
                    text = text[:at] + text[at : at + 1] * 2 + text[at + 1 :]
                case _:
                    text = text[:at] + self.one(*MARKS) + text[at + 1 :]
        return text

    # statements

    def statements(self) -> Iterator[str]:
        yield self.statement()
        while self.chance(0.3):
            yield self.one("; ", "\n", " && ", " || ", " | ", " |& ", " & ", "; # c\n")
            yield self.statement()

    def inner(self) -> str:
        """Statements inside another one, with their end."""
        if self.depth >= MAX_DEPTH:
            return "ls; "
        self.depth += 1
        text = "".join(self.statements())
        self.depth -= 1
        return text + self.one("; ", "\n", " & ") if not text.endswith("\n") else text

    def body(self) -> str:
        """The same without its end."""
        return self.inner().rstrip("; &") or "ls"

    def statement(self) -> str:
        if self.chance(0.08):
            return special_statement(self.random, inner=self.body())
        if self.chance(0.08):
            return special_command(self.random)
        if self.chance(0.62):
            return self.command()
        draw = self.random.choice(STATEMENTS)
        return draw(self)

    def command(self) -> str:
        kinds = [(READING, 0.56), (SPEAKING, 0.14), (GIT, 0.06), (WRAPPING, 0.12), (CHANGING, 0.12)]
        names, _ = self.random.choices(kinds, weights=[share for _, share in kinds])[0]
        parts = [self.random.choice(names)]
        if names is WRAPPING:
            inner = self.random.choice([*READING, *SPEAKING, *CHANGING])
            parts += [self.one(f"'{inner}'", f'"{inner}"', inner), *self.some(self.operand, most=2)]
            parts += [self.one("\\;", "+", "{} +")] if "-exec" in parts[0] else []
        else:
            parts += self.some(self.operand, most=2)
        if self.chance(0.03):
            parts[0] = self.one(
                "l\\s", "'ls'", 'l"s"', "$'ls'", "/bin/ls", "$X", "$(echo ls)", "`echo ls`", "{ls,-a}", "l?"
            )
        parts = [word for part in parts for word in self.redirected(part)]
        return " ".join([*(self.some(self.assignment, most=2, least=1) if self.chance(0.05) else []), *parts])

    def redirected(self, part: str) -> list[str]:
        if not self.chance(0.12):
            return [part]
        return [self.redirect(), part] if self.chance(0.3) else [part, self.redirect()]

    def redirect(self) -> str:
        number = self.one("", "", "", "0", "1", "2", "3", "{fd}")
        sign = self.one("<", "<", "<", ">", ">>", ">|", "&>", "&>>", ">&", "<&", "<>", "<<<")
        if sign in (">&", "<&") and self.chance(0.7):
            return f"{number}{sign}{self.one('1', '2', '-', '0', '2-')}"
        target = self.one("/dev/null", "/dev/null", "/dev/null") if ">" in sign and self.chance(0.8) else self.operand()
        return f"{number}{sign}{self.one('', ' ')}{target}"

    def assignment(self) -> str:
        name = self.one(*NAMES)
        value = self.one(
            "", "1", "C", ".", "(a b)", "([0]=a b)", "$X", '"a b"', "notes.txt", ".env", "$(ls)", "a{b,c}", '$"t"'
        )
        return f"{name}{self.one('', '', '', '[0]', '[x]')}{self.one('=', '=', '+=')}{value}"

    # words

    def operand(self) -> str:
        plain = self.one(*PLAIN)
        if self.chance(0.55):
            return plain
        if self.chance(0.12):
            return special_word(self.random)
        if self.chance(0.22):
            return self.hiding(self.one(*HIDDEN))
        return self.random.choice(WORDS)(self, plain)

    def hiding(self, path: str) -> str:
        """A path spelled in some way that bash reads as the same."""
        at = self.random.randint(1, max(1, len(path) - 1))
        head, tail = path[:at], path[at:]
        return self.one(
            path, path, f"'{path}'", f'"{path}"', f"{head}''{tail}", f'{head}"{tail}"', f"{head}\\{tail}",
            f"{head}\\\n{tail}", f"$'{path}'", f"{{{path},x}}", f"{head}{{{tail},x}}", f"{head}[{tail[:1]}]{tail[1:]}",
            f"{head}?{tail[1:]}",
            f"{head}*", f"{head}[!q]{tail[1:]}", f"{head}{{,x}}{tail}", f"--file={path}", f"-f{path}", f"{head}${{Y}}{tail}",
            f"{head}$(:){tail}",
            f"$'\\x{ord(head[0]):02x}'{path[1:]}", f"{head}{{{tail[:1]},x}}{tail[1:]}", f"{head}[a-z]{tail[1:]}", f"<{path}",
        )  # fmt: skip

    def arithmetic(self) -> str:
        number = self.one("1", "2", "x", "a[0]", "$x", "16#f", "$(ls)", "0")
        return self.one(
            number, f"{number} {self.one(*SIGNS)} 1", f"x {self.one(*SIGNS[-11:])} {number}", f"{number} + 1",
            f"-{number}", f"{number}++", f"({number} * 2)", f"{number} ? 1 : 2",
            f"x = {number}", "!1", "1, 2",
        )  # fmt: skip

    def expansion(self) -> str:
        name = self.one("X", "x", "HOME", "1", "@", "*", "#", "?", "A[0]", "A[@]", "!", "$", "-")
        value = self.one("x", ".env", "$(touch made)", "", "notes.txt", "a*", "'q'")
        how = self.one(
            ":-",
            "-",
            ":=",
            "=",
            ":+",
            "+",
            ":?",
            "?",
            "#",
            "##",
            "%",
            "%%",
            "/",
            "//",
            "/#",
            "/%",
            "^",
            "^^",
            ",",
            ",,",
        )
        return self.one(
            f"${{{name}}}", f"${{{name}{how}{value}}}", f"${{#{name}}}", f"${{!{name}}}", f"${{{name}:1:2}}", f"${{{name}/a/b}}",
            f"${{{name}@{self.one(*'UuLQEPAKak')}}}", f"${name[:1]}", f"${{!{name}@}}", f"${{{name}:{value}}}",
        )  # fmt: skip

    def pattern(self) -> str:
        return self.one("a", "*", "a|b", "'x y'", "[a-z]*", "$x", "a*", "@(a|b)", "!(x)", "1", '"a"')

    def condition(self) -> str:
        """True or false, with words of all kinds; of `[[`."""
        word = self.operand()
        return self.one(
            f"-f {word}", f"{word} == {self.one('a', '*', '$x', 'a*')}", f"{word} =~ {self.one('^a', 'a|b', '(x)', '[0-9]+')}",
            f"-n {word} && -d src", f"! -e {word} || 1 -lt 2", f"( -r {word} )", f"{word} < b", f"-v {self.one('x', 'A[0]')}",
            f"{word} -nt notes.txt", f"{word} != @(a|b)", "1 -eq 1", f"{word}",
        )  # fmt: skip


def _assigning(drawer: Drawer) -> str:
    return " ".join(drawer.some(drawer.assignment, most=3, least=1))


def _declaring(drawer: Drawer) -> str:
    name = drawer.one(
        "declare", "export", "local", "readonly", "typeset", "declare -x", "unset", "unset -v", "declare -n"
    )
    words = drawer.some(lambda: drawer.one(*NAMES) if drawer.chance(0.4) else drawer.assignment(), most=2)
    if name.startswith("unset"):
        words = [word.partition("=")[0] for word in words]
    return " ".join([name, *words])


def _testing(drawer: Drawer) -> str:
    if drawer.chance(0.5):
        return f"[[ {drawer.condition()} ]]"
    word = drawer.operand()
    tests = (f"-f {word}", f"{word} = a", f"-d {word} -a -n x", f"! -e {word}", f"{word}", "1 -lt 2", f"-n {word} -o x")
    return drawer.one("[ {} ]", "test {}").format(drawer.one(*tests))


def _heredoc(drawer: Drawer) -> str:
    end = drawer.one("E", "'E'", '"E"', "\\E")
    sign = drawer.one("<<", "<<", "<<-", "3<<", "0<<")
    behind = drawer.one(
        "", "", "", " >/dev/null", " | wc -l", " && ls", " .env", f" {drawer.redirect()}", " || touch made", " -"
    )
    text = drawer.one("x", "$x", "$(touch made)", "`ls`", "${x:-a}", "ls", "touch made", "a\\\nb", "", "\tE", "E E")
    command = drawer.one(
        "cat", "cat -", "bash", "wc", "sort", "cat - notes.txt", "read x", "sh -s", "xargs cat", "grep x"
    )
    return f"{command} {sign}{end}{behind}\n{text}\nE\n"


def _redirected(drawer: Drawer) -> str:
    """Redirections behind anything, and words behind those."""
    what = drawer.random.choice(STATEMENTS)(drawer) if drawer.depth < MAX_DEPTH else "ls"
    words = drawer.some(drawer.operand, most=2)
    return " ".join([what, drawer.redirect(), *words, *drawer.some(drawer.redirect, most=1)])


def _heard(drawer: Drawer) -> str:
    text = drawer.one(
        "ls", "x", "'touch made'", '"$x"', "$(touch made)", ".env", "'cat .env'", "{a,b}", drawer.operand()
    )
    return (
        f"{drawer.one('cat', 'bash', 'sh', 'wc', 'read x', 'xargs cat', 'bash -s')} {drawer.one('', '0', '3')}<<<{text}"
    )


def _case(drawer: Drawer) -> str:
    items = drawer.some(
        lambda: f"{drawer.one('', '(')}{drawer.pattern()}) {drawer.body()}{drawer.one(';;', ';;', ';&', ';;&')} ",
        most=2,
        least=1,
    )
    return f"case {drawer.operand()} in {''.join(items)}*) ls;; esac"


def _function(drawer: Drawer) -> str:
    name = drawer.one("f", "f", "ls", "g-h", "cat", "cd")
    body = drawer.one(
        f"{{ {drawer.inner()}}}",
        f"( {drawer.inner()})",
        f"[[ {drawer.condition()} ]]",
        f"{{ {drawer.inner()}}} </dev/null",
    )
    head = drawer.one(f"{name}()", f"function {name}", f"function {name} ()")
    return f"{head} {body}{drawer.one('', f'; {name}', f'; {name} x')}"


def _calculating(drawer: Drawer) -> str:
    return drawer.one("(( {} ))", "echo $(( {} ))", "echo $[ {} ]", "let '{}'", "A[{}]=1").format(drawer.arithmetic())


def _nested(drawer: Drawer) -> str:
    return drawer.one("{{ {}}}", "( {})", "! {}", "time {}", "{}").format(drawer.inner())


def _choosing(drawer: Drawer) -> str:
    otherwise = drawer.one("", f"else {drawer.inner()}", f"elif {drawer.inner()}then {drawer.inner()}")
    return f"if {drawer.inner()}then {drawer.inner()}{otherwise}fi"


def _looping(drawer: Drawer) -> str:
    ends = drawer.one(
        "while false", "until true", "while ! true", "while [[ a == b ]]", "until ls", "while grep -q no_such notes.txt"
    )
    values = " ".join(drawer.some(drawer.operand, most=2, least=1))
    counts = drawer.one("i=0; i<1; i++", "0; 0; 0", f"{drawer.arithmetic()}; 0; 0", "x=1, i=0; 0; i=1, 2")
    head = drawer.one(
        ends, f"for i in {values}", f"for i in {values}", f"for {drawer.one(*NAMES)} in {values}", f"for (({counts}))", "for i",
        f"select x in {values}",
    )  # fmt: skip
    return f"{head}; do {drawer.inner()}done"


STATEMENTS: Sequence[Callable[[Drawer], str]] = [
    _assigning, _declaring, _testing, _heredoc, _redirected, _redirected, _heard, _case, _function, _calculating, _nested,
    _nested, _choosing, _looping, _looping,
]  # fmt: skip


def _substituting(drawer: Drawer, _plain: str) -> str:
    text = drawer.body() if drawer.chance(0.7) else f"<{drawer.operand()}"
    return drawer.one("$({})", '"$({})"', "`{}`", "<({})", ">({})", "a$({})b").format(text)


WORDS: Sequence[Callable[[Drawer, str], str]] = [
    lambda drawer, plain: drawer.one(f"'{plain}'", f'"{plain}"', f"$'{plain}'", f'"{plain[:1]}"{plain[1:]}', f'$"{plain}"'),
    lambda drawer, plain: drawer.one(*TEXTS) if drawer.chance(0.5) else repr(drawer.one(*TEXTS)),
    lambda drawer, plain: drawer.one("src/*.py", "*.txt", "src/?.py", "src/[ab].py", "[n]otes.txt", "src/[!x].py", "no*ne"),
    lambda drawer, plain: drawer.one("{notes.txt,src/a.py}", "src/{a,b}.py", "{1..3}", "{a..c}", "x{,y}", "{a", "a,b}", "{}"),
    lambda drawer, plain: drawer.expansion(),
    lambda drawer, plain: f'"{drawer.expansion()}"' if drawer.chance(0.5) else f"{plain}{drawer.expansion()}",
    lambda drawer, plain: drawer.one(f"$(({drawer.arithmetic()}))", f"$[{drawer.arithmetic()}]", f'"$(({drawer.arithmetic()}))"'),
    _substituting,
    lambda drawer, plain: drawer.one("--help", "--version", "-l", "-rn", "--color=never", "-5", "==", "=~", "$", "2", "!", "12#"),
]  # fmt: skip
