#!/usr/bin/env bash
# Submits launch/jobset.yaml with an image and the run's arguments.
#
#   launch/jobset.sh --image=registry.example/dpaf:0.1 \
#     --config=configs/mnist.py --workdir=/runs/mnist [--config.x=y ...]
#   launch/jobset.sh --pods=4 ...     one run on four pods, each with its GPUs
#   launch/jobset.sh --dry-run ...    prints the manifest and checks the config (plan)
#
# Follow it with: kubectl logs --follow --tail=-1 --prefix --max-log-requests=64 \
#   --selector=jobset.sigs.k8s.io/jobset-name=dpaf
# Before another run, or to resume one that has ended:
#   kubectl delete jobset dpaf --cascade=foreground
set -euo pipefail
here=$(dirname "$0")

if [[ ${1-} == --help ]]; then
  sed -n '2,/^set /{s/^# \{0,1\}//p}' "$0"
  exit 0
fi
dry_run=0 image='' pods=1 arguments=()
for argument in "$@"; do
  case $argument in
    --dry-run) dry_run=1 ;;
    --image=*) image=${argument#*=} ;;
    --pods=*) pods=${argument#*=} ;;
    *) arguments+=("$argument") ;;
  esac
done
given=" ${arguments[*]-} "
if [[ -z $image || ! $pods =~ ^[1-9][0-9]*$ || $given != *' --workdir='* || $given != *' --config='* ]]; then
  echo "usage: $0 [--dry-run] --image=IMAGE [--pods=N] --config=FILE --workdir=/runs/NAME ..." >&2
  exit 2
fi

quote() { local s=${1//\\/\\\\}; printf '"%s"' "${s//\"/\\\"}"; }
# Pod 0 of a JobSet has this name; Kubernetes puts each pod's index where $(...) stands.
cluster="--cluster=dpaf-run-0-0.dpaf:4321,\$(JOB_COMPLETION_INDEX),$pods"
checked=("${arguments[@]}")
if ((pods > 1)); then arguments+=("$cluster"); fi
list=''
for argument in "${arguments[@]}"; do list+="${list:+, }$(quote "$argument")"; done
manifest=$(<"$here/jobset.yaml")
manifest=${manifest/'"@IMAGE@"'/"$(quote "$image")"}
manifest=${manifest/'"@ARGUMENTS@"'/"$list"}
manifest=${manifest//'"@PODS@"'/$pods}

if ((dry_run)); then
  printf '%s\n' "$manifest"
  # /runs is a folder of the cluster: here the plan goes to a folder for the moment.
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  JAX_PLATFORMS=cpu "$here/supervise.sh" --dry-run \
    "${checked[@]/#--workdir=*/--workdir=$scratch/plan}"
else
  kubectl apply --filename=- <<<"$manifest"
fi
