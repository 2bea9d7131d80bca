"""What is said to a prompt that was given as other programs take it: `turnwise "explain this"`, `-p "explain this"`."""

import shlex
from collections.abc import Sequence

import click

from turnwise.coding_agent.text import clean

PROMPT_OPTIONS = frozenset({"-p", "--print", "--prompt"})  # how other agents take one
MOST = 200  # characters of what was typed that are said again


class TakesPrompts(click.Command):
    """A command that says what the line would be where a prompt was meant for `turnwise run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = list(args)
        ctx.allow_extra_args = True
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in PROMPT_OPTIONS:
                raise
            name = error.option_name
            words = [part for word in typed for part in _without(name, word)]
            raise click.UsageError(f"no option `{name}`; {hint(self, words)}") from None
        if rest and not ctx.resilient_parsing:
            raise click.UsageError(f"a session begins without a prompt; {hint(self, typed)}")
        return rest


def hint(command: click.Command, typed: Sequence[str]) -> str:
    """`to give a prompt: turnwise run -m M "hello"`."""
    return f"to give a prompt: {run_line(command, typed)}"


def run_line(command: click.Command, typed: Sequence[str]) -> str:
    """The line with `run` that was meant: its options as they were typed, then all other words as one prompt."""
    options, words = _told_apart(command, typed)
    prompt = clean(quoted(" ".join(words)))
    line = " ".join(["turnwise run", *([shlex.join(options)] if options else []), *([prompt] if words else ['"..."'])])
    return line if len(line) <= MOST else 'turnwise run "..."'


def quoted(text: str) -> str:
    """In quotes for a shell, also where it needs none."""
    safe = shlex.quote(text)
    return f'"{text}"' if safe == text else safe


def _told_apart(command: click.Command, typed: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options with their values, and the words that belong to none."""
    takes_value = {
        name: isinstance(param, click.Option) and not param.is_flag and not param.count
        for param in command.params
        for name in (*param.opts, *param.secondary_opts)
    }
    options: list[str] = []
    words: list[str] = []
    left = iter(typed)
    for word in left:
        if word == "--":
            words += left
        elif not word.startswith("-") or word == "-":
            words.append(word)
        else:
            options.append(word)
            if takes_value.get(word) and (value := next(left, None)) is not None:
                options.append(value)
    return options, words


def _without(name: str, word: str) -> list[str]:
    """`-p` falls away; of `--prompt=hi` and `-phi` the prompt stays."""
    if word == name:
        return []
    glued = f"{name}=" if name.startswith("--") else name
    return [word.removeprefix(glued)] if word.startswith(glued) and not (glued == name and word[:2] == "--") else [word]
