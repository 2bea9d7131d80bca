"""Names of files as people have them: secrets, what runs later by itself, and what may be read and written freely."""

SECRETS = tuple(
    """.env .ENV.PROD prod.env .env.local .env-prod .env_prod .env~ .env.bak #.env# .envrc .dev.vars .aws/credentials
    .aws/config .kube/config .docker/config.json .azure/accessTokens.json .config/gcloud/credentials.db
    .config/gh/hosts.yml .ssh/config .ssh/known_hosts .gnupg/secring.gpg .git-credentials .config/git/credentials
    .netrc _netrc .pgpass .my.cnf .npmrc .yarnrc.yml .pypirc .cargo/credentials.toml .m2/settings.xml
    .gem/credentials .htpasswd secrets.yaml secrets.yml Secrets.TOML prod-secrets.json secret.yaml credentials
    credentials.csv db_credentials.ini application_default_credentials.json client_secret_1.json
    service-account-prod.json serviceAccountKey.json shop-firebase-adminsdk-x1.json token.json api_key.txt id_rsa
    id_ecdsa_sk id_ed25519_work ssh_host_rsa_key server.pem server.key server.key.bak .server.key.swp cert.p12
    cert.pfx AuthKey_1.p8 release.keystore app.jks passwords.kdbx login.keychain-db user.keytab vpn.ovpn backup.gpg
    notes.age putty.ppk terraform.tfstate terraform.tfstate.backup prod.tfvars plan.tfplan kubeconfig
    prod.kubeconfig .vault-token vault_pass.txt .bash_history .psql_history .irb_history secrets/db.txt
    k8s/secrets/deep/password proc/1/mem proc/self/environ .git/config sub/mirror.git/config .subversion/auth/x""".split()
)
IN_HOME = tuple(".claude/projects/x.jsonl .codex/sessions/x .gemini/tmp/x .psqlrc .terraform.d/x".split())
LATER = tuple(
    """.ignore .rgignore .readthedocs.yaml appspec.yml .ebextensions/x.config render.yaml .bsp/x.json .luarc.json
    .ycm_extra_conf.py .lvimrc .externalToolBuilders/x.launch mise/config.toml .rules .roomodes QWEN.md WARP.md CRUSH.md
    .augment-guidelines .github/workflows/ci.yml .github/actions/x/action.yml .gitlab-ci.yml .circleci/config.yml Jenkinsfile
    azure-pipelines.yml venv/lib/python3.12/site-packages/x.pth usercustomize.py src/sitecustomize.py pyvenv.cfg
    .cargo/config.toml .cargo/config rust-toolchain.toml .claude/settings.json .claude/skills/x/SKILL.md
    .cursor/rules/x.mdc .cursorrules CLAUDE.md GEMINI.md AGENTS.md sub/agents.MD .mcp.json turnwise.toml
    pyproject.toml .turnwise/x .lefthook.yml lefthook.yml lefthook-local.yml .husky/pre-commit .githooks/pre-push
    .pre-commit-config.yaml .git/hooks/pre-commit .gitattributes .gitmodules mirror/HEAD .gdbinit .lldbinit .pdbrc
    .vscode/tasks.json .idea/workspace.xml x.code-workspace .devcontainer/devcontainer.json .vimrc .exrc .nvim.lua
    .dir-locals.el .bashrc .zshenv .profile .tmux.conf .tool-versions mise.toml .Rprofile .irbrc .pnpmfile.cjs
    .yarn/releases/yarn.cjs .mvn/jvm.config gradle/wrapper/gradle-wrapper.properties Directory.Build.props
    global.json eslint.config.mjs .eslintrc.cjs .prettierrc.js .pylintrc .htaccess .user.ini netlify.toml
    .local/bin/ls""".split()
)
OPEN = tuple(
    """.env.example .env.sample .env.dist .env-example .env.template .env.defaults example.env sample.env
    secrets.example.yaml terraform.tfvars.example config.sample.json id_rsa.pub server.crt secrets.py
    src/secrets/manager.py credentials.rs docs/secrets.md tokens.json serviceaccount.yaml locales/en/auth.json
    .github.md src/environment.ts Makefile conftest.py package.json README.md src/head.py .claude-notes.txt config
    secretary.json keyboard.py monkey.yaml .claude/worktrees/feature/src/a.py""".split()
)
