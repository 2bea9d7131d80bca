"""The one table of names: which files are secret, and which ones run later by themselves.

Every tool, rule and face goes by it, the sandbox too. Text only, and nothing but the standard library: the worker that
searches files is a process of its own and loads this file by its path.

Names are compared as the most forgiving file system does it: without case, without characters that nobody sees, without dots
and blanks at the end (`.ENV` is `.env` on macOS and Windows, `.git.` is `.git` on Windows).
"""

import re
import unicodedata
from functools import lru_cache

# What is secret: keys, passwords and tokens, by convention of the tools that read them.
SECRET_NAMES = frozenset(
    """.env .envrc .dev.vars local.settings.json wp-config.php .netrc _netrc .authinfo .pgpass pgpass.conf .my.cnf
    .mylogin.cnf .dbshell .msmtprc .mbsyncrc .fetchmailrc .muttrc .offlineimaprc .smbcredentials .s3cfg .boto
    .passwd-s3fs .databrickscfg .rclone.conf rclone.conf .vault-token .npmrc .yarnrc .yarnrc.yml .pypirc
    .terraformrc terraform.rc .sentryclirc .dockercfg .dockerconfigjson .git-credentials .claude.json
    oauth_creds.json application_default_credentials.json access_tokens.db credentials.db .htpasswd .htdigest
    .kubeconfig kubeconfig kubeconfig.yaml kubeconfig.yml secret secrets credential credentials .secret .secrets
    .credentials secret.sh secrets.sh credentials.sh secrets.php credentials.php .token token.json token.txt
    access_token refresh_token auth_token github_token gh_token .apikey .api_key apikey.txt apikeys.json api_key.txt
    api_key.json api_keys.json api-key.txt api-keys.json .password .passwords password.txt passwords.txt
    passwords.csv passwords.json passwd.txt master.key rootkey.csv accesskeys.csv key.properties keystore.properties
    signing.properties .azureauth azureauth.json cookies.sqlite cookies.txt logins.json key3.db key4.db
    signons.sqlite wallet.dat fish_history .histfile .zhistory .lesshst .viminfo""".split()
)
SECRET_STEMS = tuple(
    """.env. .env- .env_ .dev.vars. id_rsa id_dsa id_ecdsa id_ed25519 id_xmss ssh_host_ service-account service_account
    serviceaccountkey serviceaccount.json client_secret client-secret gha-creds- vault_pass vault-pass .vault_pass
    .vault-pass aws_credentials aws-credentials""".split()
)
SECRET_ENDINGS = tuple(
    """.env .pem .key .p12 .pfx .p8 .pk8 .pkcs8 .pkcs12 .jks .jceks .bks .keystore .keychain .keychain-db .keytab .jwk
    .ppk .gpg .pgp .age .agekey .kdb .kdbx .psafe3 .agilekeychain .1pif .opvault .ovpn .tfstate .tfvars .tfvars.json
    .tfplan .kubeconfig .publishsettings .creds .secret .secrets .token .password .htpasswd""".split()
)
# A part of a name that says it by itself, in a file of settings: `prod-secrets.yaml`, `db_credentials.json`.
_TELLING = frozenset("secret secrets credential credentials adminsdk".split())
_SEPARATORS = re.compile(r"[._ -]")
_SETTINGS = frozenset("json yaml yml toml ini cfg conf env properties xml txt csv plist".split())
# All that lies in them, too.
SECRET_FOLDERS = frozenset(
    """.ssh .gnupg .pki .aws .azure .kube .docker .gcloud .oci .chef .password-store .1password .mozilla .thunderbird
    .heroku keyrings""".split()
)
# What lies in them, but for templates and source code: a project may have a package of that name.
_SECRET_PACKAGES = frozenset({"secrets", ".secrets"})
# Parts of a path, wherever they stand, with all below. As they are written where case counts.
SECRET_PLACES = tuple(
    """.config/gcloud .config/doctl .config/hcloud .config/rclone .config/containers .config/helm .config/sops
    .config/gh .config/glab-cli .config/hub .config/github-copilot .config/pypoetry/auth.toml .config/composer
    .config/google-chrome .config/chromium .config/BraveSoftware .config/microsoft-edge .config/Signal .config/Slack
    .config/discord .config/keepassxc .config/op .config/Bitwarden .config/anthropic .config/openai .config/opencode
    .config/turnwise .config/ngrok .local/share/keyrings .local/share/kwalletd .local/share/opencode
    .local/share/com.vercel.cli .local/share/turnwise .local/state/turnwise .cargo/credentials
    .cargo/credentials.toml .gem/credentials .m2/settings.xml .m2/settings-security.xml .gradle/gradle.properties
    .composer/auth.json .codex/auth.json .netlify/config.json .circleci/cli.yml .fly/config.yml .ngrok2
    .vercel/auth.json .davfs2/secrets .subversion/auth .hg/hgrc kubernetes/admin.conf Library/Keychains
    Library/Cookies AppData/Roaming/gcloud .git/credentials .config/git/credentials .local/share/fish/fish_history""".split()
)
# Right in a home folder, with all below. In a project, files of these names are there to be read.
SECRET_IN_HOME = tuple(".claude .codex .gemini .terraform.d .fly .nuget .age .aider.conf.yml .psqlrc".split())
# Readable for root only, and a command may be root's.
SECRET_OF_SYSTEM = tuple(
    """/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/sudoers.d /etc/ssl/private
    /etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_ecdsa_key /etc/ssh/ssh_host_ed25519_key
    /etc/NetworkManager/system-connections /var/lib/docker /var/lib/containerd /var/lib/kubelet""".split()
)
# Public halves, prose and source code: they are there to be read.
_PUBLIC_ENDINGS = tuple(
    """.pub .md .rst .adoc .html .css .svg .png .jpg .snap .py .pyi .js .ts .go .rs .java .kt .cs .c .h .cc .cpp .hpp
    .rb .swift .tsx .jsx .mjs .cjs .vue .svelte .scala .ex .exs .lua .dart .proto .graphql""".split()
)
# `.env.example`, `.env-sample`, `.env.defaults`; with an ending of their own `secrets.example.yaml`, `sample.env`.
_TEMPLATE = re.compile(
    r".*[._-](?:examples?|sample|template|tmpl|tpl|dist|j2)|\.env[._-](?:defaults?|schema)"
    r"|(?:.*[._-])?(?:example|sample|template)\.(?:env|tfvars|tfvars\.json|ya?ml|json|toml|ini|cfg|conf|properties)",
    re.DOTALL,
)
# Copies that editors and people leave beside a file: `.env~`, `server.key.bak`, `.credentials.swp`, `credentials.1`.
_COPY_ENDINGS = tuple("# ~ .bak .backup .old .orig .save .saved .copy .tmp .rej .swp .swo .swn .1 .2 .3".split())

# What runs later by itself: a program reads it without being pointed at it (a shell that starts, an editor that opens the
# folder, git, an interpreter, a server that was pushed to, an assistant), and does what it says. Not here: what runs as the
# point of a command (`Makefile`, `conftest.py`, `package.json`, sources): that command is asked about.
LATER_FOLDERS = frozenset(
    """.git git~1 .hg .svn .jj .bzr .turnwise .husky .githooks .git-hooks .lefthook .vscode .vscode-server .vs .idea .fleet
    .zed .helix .devcontainer .emacs.d .vim .github .gitlab .circleci .buildkite .woodpecker .semaphore .forgejo
    .gitea .teamcity .builds .azure-pipelines .cargo .mvn .bundle .mise .direnv .ipython .jupyter .claude .codex
    .gemini .cursor .windsurf .continue .roo .clinerules .kiro .junie .amazonq .augment .trae .opencode .agents
    cron.d crontabs launchagents launchdaemons .ebextensions .bsp .externaltoolbuilders .qwen""".split()
)
LATER_NAMES = frozenset(
    """turnwise.toml pyproject.toml .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc
    .zshenv .zprofile .zlogin .zlogout .kshrc .mkshrc .cshrc .tcshrc .login .logout .inputrc .xprofile .xinitrc
    .xsession .xsessionrc config.fish .pam_environment .forward .procmailrc .rhosts .shosts authorized_keys .mailcap
    crontab .crontab .envrc .direnvrc .tool-versions .mise.toml mise.toml .mise.local.toml mise.local.toml .autoenv
    .autoenv.zsh .gitconfig .gitmodules .gitattributes head .pre-commit-config.yaml .pre-commit-config.yml
    .pre-commit-hooks.yaml .overcommit.yml .simple-git-hooks.json .simple-git-hooks.js .simple-git-hooks.cjs
    captainhook.json grumphp.yml hk.pkl .vimrc .gvimrc .exrc .nvimrc .nvim.lua _vimrc .ideavimrc .nanorc .emacs
    .dir-locals.el .dir-locals-2.el .tmux.conf .screenrc .devcontainer.json devcontainer.json .gitpod.yml
    .gitpod.dockerfile .replit .gdbinit .lldbinit .pdbrc .pythonrc .pythonrc.py .pythonstartup sitecustomize.py
    usercustomize.py pyvenv.cfg ipython_config.py jupyter_server_config.py jupyter_notebook_config.py .irbrc .pryrc
    .gemrc .rprofile .renviron rprofile.site .octaverc .ghci .psqlrc .sqliterc .mongorc.js .mongoshrc.js .wgetrc
    .curlrc .lesskey .lessfilter .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .pnp.cjs .pnp.loader.mjs bunfig.toml
    rust-toolchain rust-toolchain.toml .bazelrc .sbtopts .jvmopts global.json directory.build.props
    directory.build.targets directory.build.rsp .pylintrc pylintrc .flake8 mypy.ini .mypy.ini .rubocop.yml .htaccess
    .user.ini web.config .gitlab-ci.yml .travis.yml .drone.yml .cirrus.yml .woodpecker.yml .build.yml appveyor.yml
    .appveyor.yml azure-pipelines.yml bitbucket-pipelines.yml jenkinsfile cloudbuild.yaml cloudbuild.yml
    buildspec.yml buildspec.yaml netlify.toml vercel.json agents.md agents.override.md agent.md claude.md
    claude.local.md gemini.md copilot-instructions.md skill.md .cursorrules .windsurfrules .clinerules .goosehints
    .aider.conf.yml .mcp.json opencode.json opencode.jsonc crush.json .crush.json qwen.md warp.md crush.md
    .augment-guidelines .rules .roomodes .ignore .rgignore .fdignore .readthedocs.yaml .readthedocs.yml appspec.yml
    appspec.yaml render.yaml render.yml .luarc.json .luarc.jsonc .ycm_extra_conf.py .lvimrc""".split()
)
LATER_STEMS = tuple(
    """lefthook. .lefthook. lefthook-local. .lefthook-local. .huskyrc .lintstagedrc lint-staged.config. .commitlintrc
    commitlint.config. .eslintrc eslint.config. .prettierrc. prettier.config. .stylelintrc stylelint.config.
    __editable__ __editable___""".split()
)
LATER_ENDINGS = tuple(
    ".pth .egg-link -gdb.py -gdb.scm -gdb.gdb .code-workspace .sublime-project .sublime-workspace".split()
)
LATER_PLACES = tuple(
    """.yarn/releases .yarn/plugins .julia/config gradle/wrapper tools/bazel .config/fish .config/nvim .config/git
    .config/autostart .config/systemd .config/environment.d .config/zsh .config/tmux .config/mise mise/config.toml .config/direnv
    .config/turnwise .config/i3 .config/sway .config/hypr .config/helix .config/emacs .config/doom .config/zellij
    .local/bin .local/share/applications .local/share/systemd""".split()
)
# Right in a home folder: programs and their settings.
LATER_IN_HOME = tuple(
    """bin .bin .pyenv .rbenv .nvm .asdf .volta .deno .bun .rustup .sdkman .oh-my-zsh .zsh .bash_it .gradle .m2 .sbt
    .julia""".split()
)
# Assistants keep copies of projects there, which are projects again.
_WORKTREES = frozenset({".claude", ".codex", ".cursor"})

Parts = tuple[str, ...]


def is_secret(path: str, *, home: str = "") -> bool:
    """Whether a path, or a pattern of paths, names what may hold keys, passwords or tokens. `home` is what `~` stands for."""
    return any(_is_secret(parts, home=home) for parts in _readings(path))


def runs_later(path: str, *, home: str = "") -> bool:
    """Whether a program obeys the file by itself: without anybody who names the file or starts it on purpose."""
    return any(_runs_later(parts, home=home) for parts in _readings(path))


def _is_secret(parts: Parts, *, home: str) -> bool:
    if not parts:
        return False
    if not SECRET_FOLDERS.isdisjoint(parts) or _stands_in(parts, places=_SECRET_PLACES):
        return True
    if _is_right_in(parts, home=home, places=_SECRET_IN_HOME) or _is_below(parts, places=_SECRET_OF_SYSTEM):
        return True
    name = parts[-1]
    if name in ("config", "config.worktree") and any(folder.endswith(".git") for folder in parts[:-1]):
        return True  # a token in a remote's address
    if name in ("environ", "mem") and "proc" in parts:
        return True
    return _is_secret_name(name) or (not _SECRET_PACKAGES.isdisjoint(parts) and not _is_public(name))


@lru_cache(maxsize=4096)  # many files have few names
def _is_secret_name(name: str) -> bool:
    if name in SECRET_NAMES or name.startswith(SECRET_STEMS) or name.endswith(SECRET_ENDINGS) or _tells(name):
        return not _is_public(name)
    if not name.endswith(_COPY_ENDINGS):
        return False
    copied = name[:-1].removeprefix("#") if name[-1] in "#~" else name.rpartition(".")[0]
    # vim puts a dot before the name
    return _is_secret_name(copied) or (copied.startswith(".") and _is_secret_name(copied[1:]))


def _tells(name: str) -> bool:
    if name[:1] == "." and name.endswith("_history"):
        return True
    stem, _, ending = name.rpartition(".")
    return ending in _SETTINGS and not _TELLING.isdisjoint(_SEPARATORS.split(stem))


def _is_public(name: str) -> bool:
    return name.endswith(_PUBLIC_ENDINGS) or _TEMPLATE.fullmatch(name) is not None


def _runs_later(parts: Parts, *, home: str) -> bool:
    if not parts:
        return False
    name = parts[-1]
    if name in LATER_NAMES or name.startswith(LATER_STEMS) or name.endswith(LATER_ENDINGS):
        return True
    if not LATER_FOLDERS.isdisjoint(parts) or _stands_in(parts, places=_LATER_PLACES):
        return True
    return _is_right_in(parts, home=home, places=_LATER_IN_HOME)


def _readings(path: str) -> list[Parts]:
    """The path's parts: as they are written and, where it goes up again, as they lead."""
    folder, _, name = path.rpartition("/")  # many files have few folders
    parts = _parts(folder) + _parts(name)
    if "worktrees" in parts:
        parts = _after_worktree(parts)
    if ".." not in parts:
        return [parts]
    reached: list[str] = []
    for part in parts:
        if part == ".." and reached and reached[-1] != "..":
            reached.pop()
        else:
            reached.append(part)
    return [parts, tuple(reached)]


def _after_worktree(parts: Parts) -> Parts:
    for at in range(len(parts) - 3, -1, -1):
        if parts[at] in _WORKTREES and parts[at + 1] == "worktrees":
            return parts[at + 3 :]
    return parts


@lru_cache(maxsize=1024)
def _parts(path: str) -> Parts:
    if not path.isascii():
        # what HFS+ ignores in a name (git's `core.protectHFS`), and composed letters as decomposed ones
        path = "".join([each for each in unicodedata.normalize("NFKC", path) if unicodedata.category(each) != "Cf"])
    parts = path.casefold().replace("\\", "/").split("/")
    return tuple([part.rstrip(". ") or part for part in parts if part not in ("", ".")])


def _split(places: Parts) -> dict[str, list[Parts]]:
    """By their first part."""
    found: dict[str, list[Parts]] = {}
    for place in places:
        parts = _parts(place)
        found.setdefault(parts[0], []).append(parts)
    return found


_SECRET_PLACES = _split(SECRET_PLACES)
_SECRET_IN_HOME = _split(SECRET_IN_HOME)
_SECRET_OF_SYSTEM = _split(SECRET_OF_SYSTEM)
_LATER_PLACES = _split(LATER_PLACES)
_LATER_IN_HOME = _split(LATER_IN_HOME)


def _stands_in(parts: Parts, *, places: dict[str, list[Parts]]) -> bool:
    if places.keys().isdisjoint(parts):
        return False
    return any(parts[at : at + len(place)] == place for at, part in enumerate(parts) for place in places.get(part, ()))


def _is_below(parts: Parts, *, places: dict[str, list[Parts]]) -> bool:
    return parts[0] in places and any(parts[: len(place)] == place for place in places[parts[0]])


def _is_right_in(parts: Parts, *, home: str, places: dict[str, list[Parts]]) -> bool:
    if places.keys().isdisjoint(parts):
        return False
    above = ("~",) if parts[0] == "~" else _parts(home)
    below = parts[len(above) :]
    return bool(above and below) and parts[: len(above)] == above and _is_below(below, places=places)
