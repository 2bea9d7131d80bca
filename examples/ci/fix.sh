#!/bin/sh
# Lets the model mend failing tests and leaves its change as a patch. Usage: fix.sh [OPTIONS OF turnwise run]
# It may edit src/ and tests/ and run the tests, nothing else. Leaves fix.patch, answer.md and run.jsonl in $OUT.
# Exit code: that of `turnwise run`. There is a patch only with exit code 0.
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${OUT:?a folder outside of the repository}"
rm -f "$OUT/fix.patch"
if ! turnwise doctor --json | grep -q '"name": "sandbox", "status": "ok"'; then
    echo "This machine has no sandbox for the commands of the model; \`turnwise doctor\` says what is missing." >&2
    exit 2
fi
turnwise run --json --unattended --no-stdin --max-requests 60 --max-time 1500 \
    --allow '*(src/**)' --allow '*(tests/**)' --allow 'bash(python -m pytest *)' "$@" \
    "Run \`python -m pytest -q\` and mend what fails. Do not weaken a test." > "$OUT/run.jsonl"
code=$?
python3 "$here/report.py" "$OUT" || exit 1
if [ "$code" -eq 0 ]; then
    git add --intent-to-add . && git diff --no-ext-diff --no-textconv --binary -- src tests > "$OUT/fix.patch" || exit 1
fi
exit "$code"
