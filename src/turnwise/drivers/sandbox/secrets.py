"""The paths that a command has no business with: keys, tokens, browsers, histories, and turnwise's own journal."""

from collections.abc import Iterable
from pathlib import Path

_IN_HOME = """
    .ssh .gnupg .pki .password-store .1password .age .vault-token .netrc .authinfo .authinfo.gpg
    .aws .azure .boto .s3cfg .oci .kube .docker .terraform.d .terraformrc .fly .heroku .databrickscfg
    .config/gcloud .config/doctl .config/hcloud .config/rclone .config/containers .config/helm .config/sops
    .git-credentials .config/git/credentials .config/gh .config/glab-cli .config/hub .config/github-copilot
    .npmrc .yarnrc .yarnrc.yml .pypirc .config/pypoetry/auth.toml .cargo/credentials .cargo/credentials.toml .gem/credentials
    .m2/settings.xml .m2/settings-security.xml .gradle/gradle.properties .nuget .composer/auth.json .config/composer
    .pgpass .my.cnf .mylogin.cnf .psqlrc
    .mozilla .thunderbird .config/google-chrome .config/chromium .config/BraveSoftware .config/microsoft-edge .config/Signal
    .config/Slack .config/discord .config/keepassxc .config/op .config/Bitwarden .local/share/keyrings .local/share/kwalletd
    .bash_history .zsh_history .python_history .node_repl_history .psql_history .mysql_history .sqlite_history .lesshst
    .local/share/fish/fish_history
    .claude .claude.json .codex .gemini .config/anthropic .config/openai .config/opencode .local/share/opencode .aider.conf.yml
    .config/turnwise .local/state/turnwise .local/share/turnwise
""".split()
# Readable for root only, and a command may be root's.
_OF_THE_SYSTEM = tuple(
    Path(text)
    for text in """/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/sudoers.d /etc/ssl/private
    /etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_ecdsa_key /etc/ssh/ssh_host_ed25519_key /etc/NetworkManager/system-connections
    /var/lib/docker /var/lib/containerd /var/lib/kubelet""".split()
)


def secret_paths(*, home: Path | None, own: Iterable[Path] = ()) -> tuple[Path, ...]:
    """Those that exist, with links resolved and none inside another. `own` are turnwise's folders and files."""
    named = [*_OF_THE_SYSTEM, *own, *([] if home is None else [home / name for name in _IN_HOME])]
    found = sorted({path for path in map(_real, named) if path is not None})
    kept: list[Path] = []
    for path in found:  # sorted: an outer one comes before those in it
        if not kept or not path.is_relative_to(kept[-1]):
            kept.append(path)
    return tuple(kept)


def _real(path: Path) -> Path | None:
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):  # absent, unreadable, or a loop of links (RuntimeError before Python 3.13)
        return None
