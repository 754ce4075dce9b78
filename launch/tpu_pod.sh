#!/usr/bin/env bash
# One Cloud TPU VM (one host, all its chips), through gcloud: copies HEAD of this
# repository there, installs it, and starts the run detached under launch/supervise.sh.
#
#   launch/tpu_pod.sh --tpu=NAME --zone=ZONE \
#     --config=configs/mnist.py --workdir=/mnt/disk/mnist [--config.x=y ...]
#   launch/tpu_pod.sh --dry-run ...    prints the commands and checks the config (plan)
#
# The VM must exist and have Python >= 3.11, pip and make. A spot VM loses its boot disk
# when it is pre-empted: keep the workdir on a disk that stays. The same command on the
# next VM resumes there. Slices with several hosts are not supported.
set -euo pipefail
here=$(dirname "$0")

dry_run=0 tpu='' zone='' workdir='' arguments=()
for argument in "$@"; do
  case $argument in
    --dry-run) dry_run=1; continue ;;
    --tpu=*) tpu=${argument#*=}; continue ;;
    --zone=*) zone=${argument#*=}; continue ;;
    --workdir=*) workdir=${argument#*=} ;;
  esac
  arguments+=("$argument")
done
if [[ -z $tpu || -z $zone || -z $workdir ]]; then
  echo "usage: $0 [--dry-run] --tpu=NAME --zone=ZONE --config=FILE --workdir=DIR ..." >&2
  exit 2
fi

# Runs a command on the VM, with this script's standard input.
on_vm() {
  local ssh=(gcloud compute tpus tpu-vm ssh "$tpu" "--zone=$zone" "--command=$1")
  if ((dry_run)); then
    printf 'would run:'
    printf ' %q' "${ssh[@]}"
    printf '\n'
    cat >/dev/null
  else
    "${ssh[@]}"
  fi
}

run=$(printf ' %q' launch/supervise.sh "${arguments[@]}")
git archive --format=tar HEAD | on_vm 'mkdir -p dpaf_jax && tar -x -C dpaf_jax'
on_vm 'cd dpaf_jax && make install EXTRAS=tpu' </dev/null
on_vm "cd dpaf_jax && JAX_PLATFORMS=tpu,cpu nohup$run >/dev/null 2>&1 </dev/null &" \
  </dev/null
log=$(printf '%q' "${workdir%/}.log")
echo "Follow it with: gcloud compute tpus tpu-vm ssh $tpu --zone=$zone" \
  "--command='cd dpaf_jax && tail -F $log'"

if ((dry_run)); then
  # The workdir is a folder of the VM: here the plan goes to a folder for the moment.
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  JAX_PLATFORMS=cpu "$here/supervise.sh" --dry-run \
    "${arguments[@]/#--workdir=*/--workdir=$scratch/plan}"
fi
