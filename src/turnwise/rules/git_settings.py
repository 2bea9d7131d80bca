"""Settings of git that name no program, no other file and no other place: one table, with what is added in each place.

Written as git writes them, in small letters. `x.*` is any setting of the section `x`, `x.*.y` is `y` in `[x "..."]`. What is not
listed may make git run something. Source: git-config(1).
"""

# Wherever they stand.
_ANYWHERE = frozenset(
    """user.name user.email author.name author.email committer.name committer.email user.useconfigonly color.* advice.*
    column.* status.* core.quotepath core.autocrlf core.eol core.safecrlf core.filemode core.abbrev core.ignorecase
    core.longpaths core.symlinks core.compression core.preloadindex core.bigfilethreshold core.untrackedcache commit.gpgsign
    tag.gpgsign push.default push.autosetupremote push.followtags pull.rebase pull.ff fetch.prune rebase.autostash
    rebase.autosquash merge.conflictstyle merge.ff init.defaultbranch gc.auto maintenance.auto log.date log.decorate
    diff.renames diff.renamelimit diff.noprefix diff.mnemonicprefix diff.algorithm diff.colormoved""".split()
)
# In a repository's own file, for commands that only read: what a repository is, and what is of use only to those that fetch.
IN_REPOSITORY = _ANYWHERE | frozenset(
    """core.repositoryformatversion core.bare core.logallrefupdates core.precomposeunicode core.protecthfs core.protectntfs
    core.whitespace core.checkstat core.trustctime core.hidedotfiles core.sparsecheckout core.sparsecheckoutcone
    core.sharedrepository extensions.objectformat remote.*.url remote.*.pushurl remote.*.fetch remote.*.tagopt remote.*.prune
    remote.*.mirror remote.*.gh-resolved branch.*.remote branch.*.merge branch.*.rebase branch.*.pushremote
    branch.*.description branch.*.vscode-merge-base branch.*.gh-merge-base branch.*.github-pr-owner-number user.signingkey
    fetch.prunetags maintenance.strategy tag.sort lfs.repositoryformatversion lfs.*.access""".split()
)
# Behind `git -c`, for any command: how much is done, and how it looks.
ON_COMMAND_LINE = _ANYWHERE | frozenset(
    """push.gpgsign fetch.parallel rebase.updaterefs merge.renamelimit log.abbrevcommit log.follow log.showroot diff.context
    http.postbuffer http.version http.lowspeedlimit http.lowspeedtime safe.directory rerere.enabled checkout.defaultremote
    grep.linenumber grep.patterntype pack.threads index.threads feature.manyfiles format.pretty i18n.logoutputencoding
    i18n.commitencoding submodule.recurse blame.date""".split()
)
