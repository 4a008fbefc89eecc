#!/usr/bin/env bash
# Reviews the scripts that differ from a base, with annotations of the diff.
#   MOFA_FILES    patterns of git, by default *.sbatch and *.slurm
#   MOFA_BASE     a commit or branch, by default HEAD~1
#   MOFA_OPTIONS  further options of `mofa check`
set -euo pipefail
base=${MOFA_BASE:-HEAD~1}
read -r -a patterns <<< "${MOFA_FILES:-*.sbatch *.slurm}"
read -r -a options <<< "${MOFA_OPTIONS:-}"
mapfile -d '' -t changed < <(git diff -z --name-only --diff-filter=d "$base" -- "${patterns[@]}")
if ((${#changed[@]} == 0)); then
    echo "mofa check: no launch script differs from $base"
    exit 0
fi
exec mofa check --base "$base" --annotate "${options[@]}" -- "${changed[@]}"
