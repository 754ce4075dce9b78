#!/usr/bin/env bash
# A Cloud TPU VM or pod slice, through gcloud: copies HEAD of this repository to each of its
# hosts, installs it, and starts the run detached under launch/supervise.sh: one process a
# host, one run on all chips.
#
#   launch/tpu_pod.sh --tpu=NAME --zone=ZONE \
#     --config=configs/mnist.py --workdir=/mnt/disk/mnist [--config.x=y ...]
#   launch/tpu_pod.sh --dry-run ...    prints the commands and checks the config (plan)
#
# The slice must exist (v6e and older, which gcloud's tpu-vm knows) and have Python >= 3.11
# with venv, and make. Images of Ubuntu 22.04 have not: sudo apt-get install -y make
# python3.11 python3.11-venv, by `ssh --worker=all --command=...`. Several hosts are reached
# at once after ssh-add of the key google_compute_engine. A spot slice loses its boot
# disks when it is pre-empted: keep the workdir on storage that stays and that all hosts see
# (such as Filestore). The same command on the next slice resumes there. It holds keys, and
# un-noised sums cross the network between hosts: both must be trusted. Where one host is
# lost in training, all start again; after it the first host's work is all that is left, and
# goes on without --cluster. To stop: pkill -TERM -f supervise.sh on all hosts, as above.
set -euo pipefail
here=$(dirname "$0")

if [[ ${1-} == --help ]]; then
  sed -n '2,/^set /{s/^# \{0,1\}//p}' "$0"
  exit 0
fi
dry_run=0 tpu='' zone='' config='' workdir='' arguments=()
for argument in "$@"; do
  case $argument in
    --dry-run) dry_run=1; continue ;;
    --tpu=*) tpu=${argument#*=}; continue ;;
    --zone=*) zone=${argument#*=}; continue ;;
    --config=*) config=${argument#*=} ;;
    --workdir=*) workdir=${argument#*=} ;;
  esac
  arguments+=("$argument")
done
if [[ -z $tpu || -z $zone || -z $config || -z $workdir ]]; then
  echo "usage: $0 [--dry-run] --tpu=NAME --zone=ZONE --config=FILE --workdir=DIR ..." >&2
  exit 2
fi

call() {
  if ((dry_run)); then
    printf 'would run:'
    printf ' %q' "$@"
    printf '\n'
  else
    "$@"
  fi
}
vm=(gcloud compute tpus tpu-vm)
on_all() { call "${vm[@]}" ssh "$tpu" "--zone=$zone" --worker=all "--command=$1"; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
run=$(printf ' %q' launch/supervise.sh "${arguments[@]}" --cluster=auto)
log=$(printf '%q' "${workdir%/}").\$HOSTNAME.log # each host its own
log=${log/#'\~'/'~'} # in their home, not in a folder of that name
git archive --format=tar --output="$scratch/dpaf_jax.tar" HEAD
call "${vm[@]}" scp "$scratch/dpaf_jax.tar" "$tpu:" "--zone=$zone" --worker=all
on_all 'mkdir -p dpaf_jax && rm -rf dpaf_jax/dpaf_jax dpaf_jax/configs &&
  tar -xmf dpaf_jax.tar -C dpaf_jax && cd dpaf_jax &&
  make install EXTRAS=tpu'
# In braces: a list in the background would keep ssh's output open until the run ends.
on_all "cd dpaf_jax && { JAX_PLATFORMS=tpu,cpu DPAF_LOG=$log nohup$run \
>/dev/null 2>&1 </dev/null & }"
echo "Follow it with: ${vm[*]} ssh $tpu --zone=$zone --worker=0" \
  "--command='cd dpaf_jax && tail -F $log'"

if ((dry_run)); then
  # The workdir is a folder of the hosts: here the plan goes to a folder for the moment.
  JAX_PLATFORMS=cpu "$here/supervise.sh" --dry-run \
    "${arguments[@]/#--workdir=*/--workdir=$scratch/plan}"
fi
