"""What is drawn besides the grammar: special variables, other shells, options of bash, lists of files, links below folders.

Most of it is judged to be more than reading, so it is drawn more rarely than plain commands (`drawn_commands`).
"""

import random
import shlex

# The shell's own (bash manual, Shell Variables and Special Parameters).
NAMED = [
    "RANDOM", "SRANDOM", "LINENO", "SECONDS", "EPOCHSECONDS", "EPOCHREALTIME", "PWD", "OLDPWD", "HOME", "PATH", "IFS", "BASHPID",
    "BASH", "BASH_ARGC", "BASH_ARGV", "BASH_ARGV0", "BASH_COMMAND", "BASH_SOURCE", "BASH_LINENO", "BASH_SUBSHELL",
    "BASH_VERSION", "BASHOPTS", "SHELLOPTS", "BASH_ALIASES", "BASH_CMDS", "BASH_REMATCH", "BASH_XTRACEFD", "BASH_COMPAT",
    "BASH_LOADABLES_PATH", "FUNCNAME", "FUNCNEST", "PIPESTATUS", "DIRSTACK", "GROUPS", "UID", "EUID", "PPID", "HOSTNAME",
    "HOSTTYPE", "OSTYPE", "MACHTYPE", "SHLVL", "REPLY", "OPTIND", "OPTARG", "OPTERR", "MAPFILE", "COPROC", "TIMEFORMAT", "TMOUT",
    "PS4", "ENV", "BASH_ENV", "CDPATH", "GLOBIGNORE", "EXECIGNORE", "HISTFILE", "HISTCMD", "POSIXLY_CORRECT", "LANG", "LC_ALL",
    "LC_MESSAGES", "TEXTDOMAIN", "TEXTDOMAINDIR", "COLUMNS", "LINES", "SHELL", "CHILD_MAX", "_", "COMP_WORDBREAKS", "COMP_WORDS",
    "EMACS", "auto_resume",
]  # fmt: skip
SIGNED = list("_-!0@*#?$1")
PATHS = [
    ".env",
    "notes.txt",
    "../outside/file.txt",
    "src/a.py",
    "tree",
    "calm",
    "~/plain.txt",
    "sub/.env",
    "key.pem",
    "10",
]
# `tree` has links that lead out and to secrets, `odd` has names of signs, `calm` has neither; see `judged_shell.make_room`.
FOLDERS = ["calm", "calm", "calm/deep", "src", "tree", "tree/deep", "tree/out", "odd", ".", "sub", "leads_far", "inner"]
SEARCHES = [
    "grep -r needle", "grep -rn needle", "grep -R needle", "grep -rl needle", "grep --recursive needle", "grep -rH needle",
    "grep --dereference-recursive needle", "grep -d recurse needle", "grep --directories=recurse needle", "egrep -r needle",
    "grep -r --include='*' needle", "grep -rf lists/names", "rg needle", "rg -L needle", "rg --follow needle", "rg --files",
    "rg -uuu needle", "rg --hidden needle", "rg -f lists/names", "rg --no-ignore needle", "find", "find -L", "find -H",
    "find -P", "ls -R", "ls -LR", "ls -RH", "ls -lR", "ls -L", "ls -H", "ls --recursive", "ls --dereference", "du", "du -L",
    "du -aL", "du -D", "du -ah", "du --dereference", "du -H", "diff src", "diff -r src", "diff -N src", "file", "file -L",
    "stat -L", "stat", "wc -c", "cat", "head -n 1", "md5sum", "realpath", "readlink -f", "git diff --no-index src",
    "git status --short", "git ls-files", "cd", "tree -l", "test -d", "[ -e", "basename", "df", "strings", "hexdump -C", "cksum",
]  # fmt: skip
BELOW = [
    "",
    "/",
    "/.",
    "/*",
    "/*/*",
    "/..",
    "/out",
    "/deep",
    "/key",
    "/?",
    "/**",
    "/deep/*",
    "/out/*",
    "/a.txt",
    "/one.txt",
    "/.*",
]
LISTS = [
    "xargs -a {} cat", "xargs -a {} echo", "xargs --arg-file={} cat", "xargs cat <{}", "xargs echo <{}", "xargs -I % cat % <{}",
    "xargs -n 1 ls <{}", "xargs -0 cat <{}", "wc --files0-from={}", "sort --files0-from={}", "du --files0-from={}", "file -f {}",
    "file --files-from={}", "file -m {} notes.txt", "grep -f {} notes.txt", "grep --file={} notes.txt", "grep -rf {} src",
    "rg -f {} src", "rg --ignore-file={} x src", "jq -f {} notes.txt", "jq --from-file {}", "jq --slurpfile x {} .",
    "jq --rawfile x {} -n '$x'", "jq -L {} -n 'import \"a\" as a; 1'", "sed -n -f {} notes.txt", "date -f {}", "date -r {}",
    "date --file={}", "touch -r {}", "cat @{}", "strings @{}", "echo @{}", "ls @{}", "gcc @{} --version", "tar -T {} -tf x",
    "sort -T {} notes.txt", "sort -S 1 {}", "ls --hyperlink=always {}", "diff --from-file={} notes.txt", "diff --to-file={} src",
    "git --no-pager log --stdin <{}", "git grep -f {}", "comm notes.txt {}", "paste {} -", "cmp {} notes.txt", "head -c 1 -- {}",
    "find -files0-from {}", "find . -newer {}", "find . -samefile {}", "find . -newermt {}", "tail --pid=1 {}", "nl -- {}",
    "cksum -c {}", "md5sum -c {}", "md5sum --check {}", "tac -r {}", "stat -c %n {}", "stat --printf=%n {}", "type {}",
    "which -a {}", "test notes.txt -nt {}", "[ {} -ef notes.txt ]", "[[ {} -ot notes.txt ]]", "source {}", ". ./{}", "bash {}",
    "sh {}", "dash {}",
]  # fmt: skip
MOVES = [
    "calm <no_such", "tree 3<no_such", "calm >/dev/null", "calm <&9", "src 2>/dev/null", "no_such/../calm", "notes.txt/../calm",
    "down", "down/..", "down/../..", "../..", "..", "tree/in", "tree/in/..", "calm/in", "calm/in/..", "calm", "calm/deep",
    "tree", "src", "./tree/in/../..", "inner/..", "../work", "tree/deep/../in", "in", "in/..", "inner", "-P tree/in",
    "-L tree/in/..", "tree/back", "tree/back/tree/in", "sub/../tree/in/..", ".",
]  # fmt: skip
AFTER_MOVES = [
    "cat key",
    "cat .env",
    "cat a.txt",
    "ls",
    "cat <key",
    "cat one.txt",
    "head -n 1 ../.env",
    "cat ../sub/.env",
    "cat x.txt",
]
LISTED = ["lists/names", "lists/ends", "notes.txt", "src/a.py", ".env", "../outside/file.txt", "-", "10", "leads_out"]
BRACES = [
    "{notes.txt,.env}", "{01..03}", "{a..e..2}", "{3..1}", "{-1..1}", "{a,{b,c}}", "{,}", "{,.env}", "no{tes.txt,}", "{a}",
    "{a,}", "{x,y}{1,2}", "{src,tree}/a.py", "$'{a,b}'", "'{a,b}'", "{a,'b,c'}", "{a\\,b}", "{a,b}}", "{{a,b}", "{src,}/a.py",
    "odd/{a,b}", "{notes,src/../notes}.txt", ".{env,x}", "{.,}env", "{.e,n}{nv,otes.txt}", "{$x,a}", "{a,b}$x", "{a..\\c}",
    "{1..3..0}", "{!,a}",
]  # fmt: skip
TILDES = [
    "~", "~/", "~/plain.txt", "~+", "~-", "~+/notes.txt", "~-/x", "~root", "~root/.profile", "~0", "~1", "~+0", "~nobody",
    "'~'/x", "\\~/x", "\"~/plain.txt\"", "a=~/plain.txt", "x:~/plain.txt", "--file=~/plain.txt", "~''/plain.txt",
    "~\\/plain.txt", "{~,a}", "~$x", "src/~", "./~", "~.", "~/.ssh", "~/../outside", "[~]", "~*",
]  # fmt: skip
MARKED = [
    "/et${Y}c/*", "$X*", "..${Y}/*/*", "${x}tree/*/*", "*$Y/*", "!!", "!$", "!-1", "!cat", "!?env?", "\"!!\"", "'!!'", "^a^b",
    "^.env^x", "!", "!#", "a!b", "!:0", "\\!", "!(x)", "@(notes.txt)", "?(x)", "*(x)", "+(n)", "!(notes.txt)", "**", "**/*.py",
    "***", "odd/*.md", "odd/[x]", "odd/-n", "odd/a\\ b.txt", "[[:alpha:]]*", "[!a-z]*", "[^.]*", "[]x]*", "[[.n.]]*", "[a-",
    ".[!.]*", "..?*", "1*", "1[0-9]", "odd/?.txt", "odd/$'\\u00e9'.txt", "odd/\\*",
]  # fmt: skip
ESCAPES = [
    "a", "b", "e", "E", "f", "n", "r", "t", "v", "\\", "'", '"', "?", "0", "00", "1", "12", "056", "101", "377", "400", "x",
    "x2", "x2e", "x2eenv", "x{2e}", "xff", "x0", "u", "u2e", "u002e", "u002eenv", "u00e9", "U", "U2e", "U0000002e", "U0001F600",
    "cA", "ca", "c?", "c\\\\", "c'", "q", "8", "9", " ", "\n", "$", "`", "u0", "U110000",
]  # fmt: skip
# Between them what dash and bash read differently: lists of words, descriptors, tests, strings, expansions.
OTHERWISE = [
    "uniq notes.txt 10>/dev/null", "cat 10</dev/null", "cat 10>&-", "cat notes.txt 12</dev/null", "wc -l 10<notes.txt",
    "cat 1>&2-", "cat {notes.txt,.env}", "cat odd/{a,b}", "cat odd/$'a'", 'cat odd/$"a"', "[[ a > made ]]",
    "[[ -f .env ]] && cat .env", "cat <<<.env", "cat &>made", "cat notes.txt &>/dev/null", "cat >&made", "cat |& wc",
    "cat <(ls)", "ls ~+", "ls ~-", "ls [^a]*", "echo -e 'a\\nb'", "echo 'a\\0101'", "echo 'x\\c'; ls", "function f { ls; }; f",
    "f() { ls; }; f", "time ls", "time -p ls", "source notes.txt", ". notes.txt", ". ./notes.txt", "local x=1; ls",
    "declare x=1", "export x=1 y=2", "readonly x=1; ls", "x=(a b)", "x+=1; ls", "x[0]=1", "ls $x[0]", "let x=1", "((x = 1))",
    "for ((;;)); do ls; done", "select x in a; do ls; done", "! ! ls", "! ls", "{ls;}", "{ ls; }", "(ls)", "ls;;",
    "case x in (x) ls;; esac", "case x in x) ls;& *) ls;; esac", "ls $[1+1]", "ls $((1))", "echo $((010))", "read x <notes.txt",
    "read -d x y", "test a == a && ls", "[ a == a ] && ls", "[ a \\< b ] && ls", "type -a ls", "command -v ls", "builtin ls",
    "exec ls", "exec -a x ls", "eval ls", "trap ls EXIT", "trap ls ERR", "trap ls DEBUG", "cd src; ls", "cd - ; ls",
    "cd src && cat a.py", "cd tree/out; ls", "cd tree/deep/..; ls", "cd -P tree/back; ls", "pushd src; ls", "printf %b '\\x41'",
    "printf '%q' x", "echo ${x/a/b}", "echo ${x:1:2}", "echo ${!x}", "echo ${x^^}", "echo ${x@P}", "echo ${#x}",
    "ls 2>/dev/null", "ls >/dev/null 2>&1", "ls 2>&1 | wc -l", "cat - <notes.txt", "cat <<E\nx\nE", "cat <<-E\n\tx\n\tE",
    "echo `ls`", "cat <<'E'\n$x\nE", "cat <<E | wc\nx\nE", "echo $(<notes.txt)", "echo $(<.env)", "ls \\\n-a", "cat .en\\\nv",
    "alias a=ls; a", "umask", "ulimit -a", "wait", "jobs", "set -- a; ls", "shift; ls", "getopts a x; ls", "hash ls", "kill -l",
    "times", "fc -l", "history",
]  # fmt: skip
SHELLS = [
    "sh -c", "dash -c", "sh -c", "dash -c", "bash -c", "sh -e -c", "sh -eu -c", "dash -e -c", "/bin/sh -c", "/usr/bin/dash -c",
    "env sh -c", "timeout 1 sh -c", "bash -c 'sh -c ls'; sh -c", "bash --posix -c", "bash -o posix -c", "sh -x -c", "sh -f -c",
    "bash -x -c", "bash -e -u -o pipefail -c", "bash -O extglob -c", "bash -O dotglob -c", "bash -O nullglob -c", "bash +B -c",
    "bash -f -c", "bash -k -c", "bash -n -c", "bash -v -c", "bash -l -c", "bash -lc", "bash -ic", "bash -r -c", "bash -p -c",
    "bash -s", "bash -a -c", "bash -h -c", "bash -ec", "bash -euo pipefail -c", "bash -o noglob -c", "bash +O sourcepath -c",
    "bash -D -c", "bash --norc -c", "bash --noprofile --norc -c", "bash --rcfile .env -c", "bash --init-file .env -ic",
    "bash --login -c", "bash --verbose -c", "bash --dump-strings -c", "bash --", "bash -- -c", "bash -m -c", "bash -C -c",
    "bash -H -c", "rbash -c",
]  # fmt: skip
SETTINGS = [
    "set -f", "set +f", "set -e", "set -u", "set -x", "set -eu", "set -euo pipefail", "set -o posix", "set +o posix",
    "set -o noglob", "set -o pipefail", "set -k", "set -a", "set +B", "set -B", "set -C", "set -n", "set -v", "set -m", "set -h",
    "set -P", "set -H", "set -o", "set", "set --", "set -- .env x", "set a b", "set -o history", "set -o allexport", "set - x",
    "set -T", "set -E", "set -o functrace", "shopt", "shopt -s extglob", "shopt -s dotglob", "shopt -s nullglob",
    "shopt -s globstar", "shopt -s nocaseglob", "shopt -u extglob", "shopt -s failglob", "shopt -s expand_aliases",
    "shopt -s lastpipe", "shopt -s cdable_vars", "shopt -s autocd", "shopt -so posix", "shopt -p", "shopt -q extglob",
    "shopt -s nocasematch", "shopt -s extquote", "shopt -s compat31", "shopt -s execfail", "shopt -s checkwinsize",
    "shopt -s cdspell", "shopt -s localvar_inherit", "shopt -s assoc_expand_once", "shopt -s patsub_replacement",
]  # fmt: skip
THEN = [
    "ls",
    "cat *",
    "cat *.txt",
    "cat .e*",
    "cat calm/*",
    "cat !(x)",
    "ls {a,b}",
    "cat {.env,x}",
    "cd src",
    "echo x",
    "cat ?ey.pem",
    "ls **",
]


def special_word(source: random.Random) -> str:
    """A word of one of these kinds, which may stand anywhere."""
    name = source.choice(NAMED)
    match source.randrange(8):
        case 0:
            forms = '${0} "${0}" ${{{0}}} ${{{0}:-x}} ${{{0}[0]}} ${{#{0}}} ${{!{0}}} $(({0})) ${{{0}#x}} ${{{0}@Q}} ${{{0}:0:1}}'
            return source.choice(forms.split()).format(name)
        case 1:
            return source.choice(["${}", '"${}"', "${{{}}}", "a${}", "${{{}:-x}}", "${{#{}}}"]).format(
                source.choice(SIGNED)
            )
        case 2 | 3:
            return escaped_word(source)
        case 4:
            return source.choice(BRACES)
        case 5:
            return source.choice(TILDES)
        case 6:
            return source.choice(MARKED)
        case _:
            word = source.choice(["hello", "a b", "$x", ".env", "`ls`", "$(ls)", "notes.txt", "\\$x", "a\\\nb", "!"])
            return f'$"{word}"'


def escaped_word(source: random.Random) -> str:
    """`$'...'` with escapes of any kind, now and then of a path letter by letter."""
    if source.random() < 0.5:
        path = source.choice(PATHS)
        forms = ["\\x{:02x}", "\\x{:x}", "\\{:03o}", "\\{:o}", "\\u{:04x}", "\\u{:x}", "\\U{:08x}", "\\U{:x}"]
        letters = [source.choice(forms).format(ord(one)) if source.random() < 0.4 else one for one in path]
        return f"$'{''.join(letters)}'"
    inner = "".join(
        f"{source.choice(['', 'a', '.', 'env'])}\\{source.choice(ESCAPES)}" for _ in range(source.randint(1, 3))
    )
    return f"{source.choice(['', '', 'odd/', 'src/'])}$'{inner}'"


def special_command(source: random.Random) -> str:
    """Searches below folders, and programs that take names or scripts from a file."""
    if source.random() < 0.65:
        below = source.choice(BELOW) if source.random() < 0.4 else ""
        behind = source.choice(
            ["", "", "", "", " -type f", " -maxdepth 2", " -follow", " | head", " -name '*.txt'", " ]"]
        )
        return f"{source.choice(SEARCHES)} {source.choice(FOLDERS)}{below}{behind}"
    if source.random() < 0.3:
        how = source.choice(
            ["cd", "cd", "cd", "cd", "time cd", "command cd", "builtin cd", "eval cd", "\\time cd", "! cd", "exec cd"]
        )
        moves = [f"{how} {source.choice(MOVES)}" for _ in range(source.randint(1, 3))]
        line = source.choice(["; ", "; ", " && "]).join([*moves, source.choice(AFTER_MOVES)])
        return f"{source.choice(SHELLS)} {shlex.quote(line)}" if source.random() < 0.25 else line
    return source.choice(LISTS).format(source.choice(LISTED))


def special_statement(source: random.Random, *, inner: str) -> str:
    """Variables of the shell's own that are set, other shells, and settings that change how later words are read."""
    name = source.choice(NAMED)
    match source.randrange(6):
        case 0:
            value = source.choice(
                ["", "1", "x", ".", "'a[$(touch made)]'", "/tmp", "notes.txt", "$RANDOM", ".env", "(a b)", "src"]
            )
            forms = [
                "{0}={1}", "{0}={1}; {2}", "{0}={1} {2}", "export {0}={1}", "unset {0}; {2}", "readonly {0}; {2}",
                "local {0}={1}", "declare -i {0}={1}", "x=${0}", "x=${0}; {2}", "(({0}))", "(({0} = {1}))", "[[ ${0} == x ]]",
                "[ \"${0}\" = x ]", "{0}+={1}; {2}", "{0}[0]={1}; {2}", "env {0}={1} {2}", "env -u {0} {2}", ": ${{{0}:={1}}}",
                "case ${0} in *) {2};; esac", "for {0} in a b; do {2}; done", "read {0} <notes.txt; {2}", "printf -v {0} x; {2}",
                "export -n {0}", "x={1} {2}",
            ]  # fmt: skip
            return source.choice(forms).format(name, value, source.choice(THEN))
        case 1 | 2:
            script = source.choice([inner, inner, source.choice(OTHERWISE)])
            behind = source.choice(["", "", "", " x", " .env notes.txt", " -x", " -- y"])
            return f"{source.choice(SHELLS[: 10 if source.random() < 0.6 else None])} {shlex.quote(script)}{behind}"
        case 3:
            return f"{source.choice(SHELLS[:8])} {shlex.quote(source.choice(OTHERWISE))}"
        case 4:
            return source.choice(OTHERWISE)
        case _:
            between = source.choice(["; ", "; ", "\n", " && ", " | "])
            return f"{source.choice(SETTINGS)}{between}{source.choice([inner, *THEN])}"
