#!/bin/sh
# Submit a refit to a Ray cluster, show its log, and exit with the exit code of the refit itself: 0 done, 1 run it
# again, 2 a person must change something. `ray job submit` exits with 1 for both; the refit's last line distinguishes
# them.
#
#   RAY_AUTH_MODE=token RAY_ADDRESS=http://127.0.0.1:8265 deploy/submit-refit.sh --config deploy/refit.yaml
set -u
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
cd "$(dirname "$0")/.." || exit 1
ray job submit --working-dir . -- python jobs/refit.py "$@" 2>&1 | tee "$log"
code=$(sed -n 's/^{"outcome": .*"exit_code": \([0-9][0-9]*\).*/\1/p' "$log" | tail -n 1)
exit "${code:-1}" # without an answer, the job never started or was killed: run it again
