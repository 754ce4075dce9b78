#!/usr/bin/env bash
# One machine with one or more NVIDIA GPUs; the run uses all of them (fewer:
# --config.run.devices=2, or CUDA_VISIBLE_DEVICES). First: make install EXTRAS=cuda.
#
#   nohup launch/gpu_box.sh --config=configs/mnist.py --workdir=runs/mnist &
#   tail -f runs/mnist.log
#
# Options, restarts and the log: launch/supervise.sh; --dry-run needs no GPU.
set -euo pipefail
# So a run stops where no GPU works, in place of going on on the CPU.
export JAX_PLATFORMS=${JAX_PLATFORMS:-cuda,cpu}
case " $* " in *' --dry-run '*) JAX_PLATFORMS=cpu ;; esac
if [[ ${1-} == --help ]]; then
  sed -n '2,/^set /{s/^# \{0,1\}//p}' "$0"
  exit 0
fi
exec "$(dirname "$0")/supervise.sh" "$@"
