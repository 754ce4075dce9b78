#!/usr/bin/env bash
# Runs dpaf_jax.main, keeps a log, and starts it again when a signal ended it (143: a
# pre-emption, and the run has saved itself; 137: it was killed). The same workdir makes
# it resume. An error of the run itself (status below 128) is final, since
# it would recur, and so is a Ctrl-C (130).
#
#   launch/supervise.sh --config=configs/mnist.py --workdir=runs/mnist [--config.x=y ...]
#   launch/supervise.sh --dry-run ...    prints the command and checks the config (plan)
#
# A TERM, INT or HUP to this script goes to the run as one TERM: it saves and stops for
# good. From the environment: PYTHON (default: .venv/bin/python where there is one),
# LAUNCHER (a command in front of the run's, such as srun; default: none), STOPPER (a
# command that tells the run to stop; default: a TERM), DPAF_LOG (default: <workdir>.log;
# empty: none), MAX_RESTARTS, RESTART_SECONDS.
set -uo pipefail
umask 077 # a run's files are for its owner

if [[ ${1-} == --help ]]; then
  sed -n '2,/^set /{s/^# \{0,1\}//p}' "$0"
  exit 0
fi
dry_run=0 config='' workdir='' arguments=()
for argument in "$@"; do
  case $argument in
    --dry-run) dry_run=1; continue ;;
    --config=*) config=${argument#*=} ;;
    --workdir=*) workdir=${argument#*=} ;;
  esac
  arguments+=("$argument")
done
if [[ -z $config || -z $workdir ]]; then
  echo "usage: $0 [--dry-run] --config=FILE --workdir=DIR [--config.FIELD=VALUE ...]" >&2
  exit 2
fi

python=${PYTHON:-}
if [[ -z $python ]]; then
  if [[ -x .venv/bin/python ]]; then python=.venv/bin/python; else python=python3; fi
fi
read -ra command <<<"${LAUNCHER-}"
command+=("$python" -m dpaf_jax.main "${arguments[@]}")

if ((dry_run)); then
  printf 'would run:'
  printf ' %q' "${command[@]}"
  printf '\nData that are not needed for the plan are not looked for.\n'
  exec "${command[@]}" --stage=plan
fi

if [[ $workdir == "~"/* ]]; then workdir=$HOME/${workdir:2}; fi # as the run reads it
log=${DPAF_LOG-${workdir%/}.log}
if [[ -n $log ]]; then
  mkdir -p "$(dirname "$log")" && touch "$log" || exit 1
  # A TERM to all our processes must not end tee before the run has saved.
  exec > >(trap '' TERM INT HUP && exec tee -a "$log") 2>&1
fi
say() { echo "$(date -u +%FT%TZ) launch: $*"; }

child='' stopping=0
tell() {
  if [[ -z ${STOPPER-} ]]; then
    kill -TERM "$child" 2>/dev/null
  else # again until it is heard: what LAUNCHER has not begun yet cannot be told
    while kill -0 "$child" 2>/dev/null; do
      $STOPPER
      sleep 2
    done &
  fi
}
stop() {
  if ((!stopping)) && [[ -n $child ]]; then tell; fi
  stopping=1
}
trap stop TERM INT HUP

for ((restarts = 0; ; restarts++)); do
  say "start on $HOSTNAME: ${command[*]}"
  # A terminal that closes tells all processes; the run hears of it from here.
  (trap '' HUP && exec "${command[@]}") &
  child=$!
  if ((stopping)); then tell; fi
  wait "$child"
  status=$?
  while kill -0 "$child" 2>/dev/null; do # a signal to this script ends a wait early
    wait "$child"
    status=$?
  done
  child=''
  say "the run ended with status $status"
  if ((status <= 128 || status == 130 || restarts >= ${MAX_RESTARTS:-20})); then exit "$status"; fi
  if ((!stopping)); then
    sleep "${RESTART_SECONDS:-10}" &
    wait $! # ends early when a signal comes
  fi
  if ((stopping)); then exit "$status"; fi
done
