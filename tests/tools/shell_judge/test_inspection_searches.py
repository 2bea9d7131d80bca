"""What a search of a folder shows, and which names a glob finds, compared with the programs themselves."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from everyday import SHELL_ALLOWED, make_project, verdict_on
from turnwise.rules.permissions import PermissionKind, PermissionRule
from turnwise.tools.shell_judge.grammar import MAX_PIPES, parse
from waits import HANG_S

RG = shutil.which("rg")
CANARY = "canary-of-a-secret"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with secrets beside and in it, a link out of a folder below, and a name of two bytes that leads to a secret."""
    project = make_project(tmp_path.resolve())
    (tmp_path / "home").mkdir(exist_ok=True)
    key = tmp_path / "home" / ".ssh" / "id_rsa"
    key.parent.mkdir(exist_ok=True)
    key.write_text(CANARY)
    for name in ("da", "db", "plain", "other"):
        (project / name).mkdir(exist_ok=True)
        (project / name / "x").write_text("x")
    (project / "da" / "x").unlink()
    (project / "da" / "x").symlink_to(key)
    (project / "é").symlink_to(key)
    return project


@pytest.mark.promise("safe:judged")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("diff da db", "ask"),
        ("diff plain other", "allow"),
        ("strings @list.txt", "ask"),
        ("strings notes.txt", "allow"),
        ("LC_ALL=C; cat ??", "ask"),
        ("LC_ALL=C; cat ?[!x]", "ask"),
        ("cat ?", "ask"),
        (r"cat $'\u00e9'", "ask"),
        (r"cat $'\303\251'", "ask"),
        ("cat note?.txt", "allow"),
        (r"cat $'a\nb/../.env'", "ask"),
        (r"cat <$'a\nb/../.env'", "ask"),
    ],
)
def test_what_a_command_would_show_is_found_behind_links_and_names(
    command: str, expected: PermissionKind, project: Path
) -> None:
    """Issue 13, lines 2 and 11: folders that are compared, lists of words in files, names of several bytes or lines."""
    (project / "list.txt").write_text(".env\n")
    assert verdict_on(command, project=project) == expected


FOLLOWING = ["-LR", "-RL", "-lR -L", "--recursive --dereference", "-R --dereference", "-L --recursive", "-R {} -L"]


@pytest.mark.promise("safe:judged")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        *[(f"ls {option.replace('{}', 'da')} .", "ask") for option in FOLLOWING],
        ("du -L .", "ask"),
        ("du -aL plain", "ask"),
        ("tree -l .", "ask"),
        ("tree -al .", "ask"),
        ("find -L .", "ask"),
        ("find . -follow", "ask"),
        ("grep -R x da", "ask"),
        ("rg -L x da", "ask"),
        ("ls -R .", "allow"),
        ("ls -lL notes.txt", "allow"),
        ("du -sh .", "allow"),
        ("tree -L 2 .", "allow"),
        ("find . -name x", "allow"),
    ],
)
def test_what_follows_links_below_a_folder_is_asked_about(
    command: str, expected: PermissionKind, project: Path
) -> None:
    """Issue 13, "Done when" 2: `ls -RL` lists the folders outside to which links lead; everything else about them is judged by
    path, but no path below is named."""
    (project / "da" / "out").symlink_to("/etc")
    assert verdict_on(command, project=project) == expected


@pytest.mark.promise("safe:judged")
@pytest.mark.parametrize("word", ["*/*.conf", "*/*.no", "d?/*/[a-z].no", "*/out/*.no", "**/*.no", "./*/*/*.no"])
@pytest.mark.parametrize("command", ["ls {}", "echo {}", "for x in {}; do ls; done", "x=({})", "cat <{}", "[ -f {} ]"])
def test_a_glob_that_looks_into_a_folder_outside_is_asked_about(command: str, word: str, project: Path) -> None:
    """Issue 13, line 11: bash reads the names of all folders that it goes through, those behind a link, too, and tells whether
    one fits though none of them does."""
    (project / "da" / "out").symlink_to("/etc")
    (project / "dz").symlink_to("/etc")
    assert verdict_on(command.format(word), project=project) == "ask"


@pytest.mark.promise("safe:judged")
@pytest.mark.parametrize(
    "command",
    [
        "for x in /et${Y}c/*; do ls; done",
        "for x in $Y/*; do ls; done",
        "for x in $Y; do ls; done",
        "for x in $(cat notes.txt); do ls; done",
        "select x in $Y*; do ls; done",
        "x=($Y)",
        "x=(a /et${Y}c/*)",
        "x=(~+/*)",
        "sh -c ls $Y*",
        "bash -c 'ls' x /et${Y}c/*",
        "bash -s $Y <<<ls",
        "trap ls $Y EXIT",
        "timeout 1 bash -c ls $Y*",
    ],
)
def test_a_word_that_may_come_to_a_glob_is_asked_about_where_nothing_is_done_with_it(
    command: str, project: Path
) -> None:
    """Issue 13, "Done when" 2: bash looks for the names though neither the loop nor the shell uses them."""
    assert verdict_on(command, project=project) == "ask"
    assert verdict_on(command, project=project, rules=SHELL_ALLOWED) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        'for x in "$Y" "a$Y"\'b\' c; do ls; done',
        'x=("$Y" b)',
        "x=$Y*",
        "sh -c ls a b",
        "for x in src/*.py a{b,c}; do ls; done",
        "[ -f src/a.py -a x = y ]",
    ],
)
def test_a_word_that_stays_one_is_judged_as_before(command: str, project: Path) -> None:
    """In quotes no wildcard counts, and an assignment looks for no names."""
    assert verdict_on(command, project=project) == "allow"


def test_a_glob_that_stays_inside_is_judged_as_before(project: Path) -> None:
    """Links inside, links to files, and names that no glob has to look for."""
    (project / "inner").symlink_to("plain")
    for command in ("ls */*", "echo */*.no", "ls */x", "for f in */*.py; do ls; done", "wc -l src/*.py"):
        (project / "da" / "x").unlink(missing_ok=True)
        assert verdict_on(command, project=project) == "allow"


@pytest.mark.promise("safe:judged")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (r"cat $'a\nb/../.env'", "ask"),
        (r"cp notes.txt $'a\nb/../../home/.bashrc'", "ask"),
        (r"git commit -m $'Say it\n\nin .env and /etc: both'", "allow"),
        ("curl file:///etc/passwd", "ask"),
        ("curl FILE://localhost/etc/passwd", "ask"),
        ("curl 'file:///et%63/passwd'", "ask"),
        ("curl 'file:///e{t,x}c/passwd'", "ask"),
        ("curl -d@.env http://127.0.0.1/", "ask"),
        ("curl -sT.env http://127.0.0.1/", "ask"),
        ("curl -s http://127.0.0.1/x", "allow"),
    ],
)
def test_a_path_hides_in_no_word_of_several_lines_or_options(
    command: str, expected: PermissionKind, project: Path
) -> None:
    """Issue 13, line 11: where the shell is allowed in general."""
    assert verdict_on(command, project=project, rules=SHELL_ALLOWED) == expected


@pytest.mark.promise("safe:judged")
@pytest.mark.parametrize(
    "command",
    [
        "sed --line-length 5 '1e touch x' notes.txt",
        "sed --l 5 '1e id' notes.txt",
        "sed --quiet '1e id' notes.txt",
        "awk --assign x=1 'BEGIN{system(\"id\")}'",
        "awk --field-sep : 'BEGIN{system(\"id\")}'",
        "awk -W exec prog.awk",
        "awk -We prog.awk",
    ],
)
def test_a_script_behind_a_long_option_is_read(command: str, project: Path) -> None:
    """Issue 13, line 7: a pattern allows the command, not what its script runs."""
    name = command.split()[0]
    rules = (PermissionRule(verdict="allow", tool="bash", command=(name, "*"), source="user"),)
    assert verdict_on(command, project=project, rules=rules) == "ask"
    assert verdict_on(f"{name} --posix 1p notes.txt", project=project, rules=rules) == "allow"


PLAIN_CONFIG = """[core]
\tbare = false
[user]
\tname = A Person
[remote "origin"]
\turl = https://example.org/a/b.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
"""


@pytest.mark.promise("safe:judged")
@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", "allow"),
        ('[remote "b"]\n\turl = git@example.org:a/b.git\n', "allow"),
        ('[remote "b"]\n\turl = https://name:word@example.org/a\n', "ask"),
        ('[remote "b"]\n\turl = https://ghp_abc@example.org/a\n', "ask"),
        ("[http]\n\textraHeader = AUTHORIZATION: basic abc\n", "ask"),
        ("[credential]\n\thelper = store\n", "ask"),
        ("[hub]\n\toauthToken = abc\n", "ask"),
        ("[a]\n\tb = \u202eabc\n", "ask"),
        ("# " + "x" * 70_000, "ask"),
    ],
)
def test_a_search_of_a_repository_asks_where_its_settings_may_hold_a_key(
    more: str, expected: PermissionKind, project: Path
) -> None:
    """`grep -r` shows the lines of `.git/config` too, where a token may stand in an address; most have none."""
    git = project / "plain" / ".git"
    git.mkdir()
    (git / "config").write_text(PLAIN_CONFIG + more)
    for command in ("grep -rn x plain", "cd plain && grep -rn x ."):
        assert verdict_on(command, project=project) == expected
    assert verdict_on("cat plain/.git/config", project=project) == "ask"
    (git / "config").unlink()
    os.mkfifo(git / "config")
    assert verdict_on("grep -rn x plain", project=project) == "ask"


@pytest.mark.skipif(RG is None, reason="ripgrep is not installed")
@pytest.mark.parametrize(
    ("file", "line"),
    [
        (".ignore", "!.env"),
        (".rgignore", "!/.env"),
        (".gitignore", "!.e*"),
        (".ignore", "# x\n!.[e]nv"),
        (".ignore", "!**/.env"),
        ("plain/.ignore", "!.env"),
        (".gitignore", "!.gitkeep"),
        (".gitignore", "!.env.example"),
        (".ignore", ".env"),
    ],
)
@pytest.mark.parametrize("place", [".", "plain"])
def test_a_search_that_ripgrep_shows_a_secret_in_is_asked_about(
    file: str, line: str, place: str, project: Path
) -> None:
    """A line of an ignore file brings hidden files back. ripgrep itself says whether it shows the secret."""
    for folder in (project, project / "plain"):
        (folder / ".env").write_text(CANARY)
    (project / file).write_text(line + "\n")
    assert RG is not None
    ran = subprocess.run(
        [RG, "--no-config", CANARY, place], cwd=project, capture_output=True, timeout=HANG_S, check=False,
        env={"PATH": os.defpath},
    )  # fmt: skip
    shown = CANARY.encode() in ran.stdout
    verdict = verdict_on(f"rg {CANARY} {place}", project=project)
    assert verdict == "ask" if shown else verdict in ("ask", "allow")
    if line in ("!.gitkeep", "!.env.example", ".env"):
        assert not shown
        assert verdict == "allow"


@pytest.mark.promise("safe:judged")
def test_a_search_that_reads_options_from_a_file_is_asked_about(project: Path) -> None:
    """The file that `RIPGREP_CONFIG_PATH` names may say `--hidden`, for every search."""
    (project / "plain" / ".env").write_text(CANARY)
    environment = {"RIPGREP_CONFIG_PATH": "x"}
    assert verdict_on("rg x plain", project=project) == "allow"
    assert verdict_on("rg x plain", project=project, environment=environment) == "ask"
    assert verdict_on("rg --no-config x plain", project=project, environment=environment) == "allow"
    assert verdict_on("rg x src", project=project, environment=environment) == "allow"


def test_a_glob_of_many_stars_is_judged_in_time_that_grows_with_the_name(project: Path) -> None:
    """A name of 250 letters and twenty stars took for ever, and nothing else ran meanwhile."""
    (project / "plain" / ("a" * 250)).write_text("")
    assert verdict_on("cat plain/" + "*a" * 20 + "b", project=project) in ("ask", "allow")


@pytest.mark.costly
@pytest.mark.parametrize("text", ["-`>", "+|", "a=(", "$[", "))", "(("])
def test_text_that_is_no_script_is_given_up(text: str) -> None:
    """Building a tree of it took time and memory that grow with its square: 94 s for 64 KiB of the first, or all memory."""
    _, problem = parse((text * 64_000)[:64_000])
    assert problem


@pytest.mark.parametrize("text", ["+|", "a | ", "a|\n", "a|&", "a||", "$(a|"])
def test_more_pipes_than_a_person_reads_are_given_up_before_a_tree_is_built(text: str) -> None:
    """Where the last of them led nowhere, the parser took 83 s and 9 GB for 64 KiB, and did not ask whether it was late."""
    root, problem = parse(text * (MAX_PIPES + 1))
    assert root is None and problem == f"it has more than {MAX_PIPES} pipes"


def test_a_long_table_in_a_text_is_judged() -> None:
    """What people write has many fewer pipes."""
    table = "| a | b | c |\n" * 400
    assert parse(f"cat <<'E'\n{table}E\n")[1] == ""
