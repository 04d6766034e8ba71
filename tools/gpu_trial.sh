#!/usr/bin/env bash
# A quarter of an hour on a GPU that counts, also on a node without network: one line a check, with its name, verdict, figure and seconds.
#
#   tools/gpu_trial.sh prepare    with network, once: what the node's image lacks, in build/gpu_trial, in pieces of at most 40 MB
#   tools/gpu_trial.sh first      on the node: checks without Ray, 300 seconds at most
#   tools/gpu_trial.sh stack      on the node: real runs, 420 seconds at most
#   tools/gpu_trial.sh rehearse   here, on the CPU: the checks of `first`, with everything that needs a GPU skipped; `rehearse stack` for the others
#
# Carry the working tree with build/gpu_trial/pieces, or any folder with `pieces` that CARRIED names. PYTHON names the interpreter (the
# image's, with its torch); OUT the results' folder.
set -euo pipefail
cd "$(dirname "$0")/.."
carried=${CARRIED:-build/gpu_trial}
python=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || command -v python3)}
out=${OUT:-runs/gpu_trial/$(date -u +%Y-%m-%dT%H-%M-%S)}

# For an image of Python 3.12 and torch 2.11, which vLLM 0.24 was built for, and OpenRLHF 0.11.0 with it. PACKAGES adds what else an image lacks:
# the check `packages` names the first module that is missing.
read -rd '' -a packages <<<"openrlhf==0.11.0 vllm==0.24.0 ray==2.55.0 transformers==5.15.0 tokenizers accelerate peft safetensors datasets torchdata
  wrapt typer rich pydantic pydantic-core annotated-types typing-inspection mpmath msgspec blake3 cbor2 pybase64 gguf ${PACKAGES:-}" || true
# Built from its source, without operations (torch's Adam takes their place) and in isolation: with torch in sight it wants to compile.
source_only=(deepspeed==0.19.5)
# What no check needs: Ray's Java, dashboard and libraries; vLLM's server in Rust; kernels of cards and of number types that Hopper's bf16 does not use.
dropped=(ray/jars ray/dashboard/client ray/rllib ray/tune ray/serve ray/data ray/train ray/air
  'vllm/_flashmla*.so' 'vllm/_moe_C*.so' 'vllm/vllm_flash_attn/_vllm_fa2_C*.so' vllm/third_party/deep_gemm vllm/third_party/fmha_sm100 vllm/vllm-rs)

prepare() {
  rm -rf "$carried"
  mkdir -p "$carried/wheels" "$carried/pieces"
  DS_BUILD_OPS=0 "$python" -m pip wheel --quiet --no-deps --use-pep517 --wheel-dir "$carried/wheels" "${source_only[@]}"
  "$python" -m pip install --quiet --no-deps --no-compile --target "$carried/site" --python-version 3.12 --implementation cp \
    --platform manylinux_2_31_x86_64 --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --only-binary=:all: \
    "${packages[@]}" "$carried"/wheels/*.whl
  local pattern
  for pattern in "${dropped[@]}"; do
    find "$carried/site" -path "$carried/site/$pattern" -prune -exec rm -rf {} +
  done
  tar -C "$carried" -c site | xz -T0 -1 | split --bytes 40000000 - "$carried/pieces/site.tar.xz."
  (cd "$carried/pieces" && sha256sum site.tar.xz.* >SHA256SUMS)
  rm -rf "$carried/site" "$carried/wheels"
  du -ch "$carried"/pieces/*
}

# The pieces' digests are checked before anything is unpacked.
unpack() {
  [ -d "$carried/pieces" ] || { echo "nothing was carried: the checks use what this Python has"; return; }
  if [ ! -d "$carried/site" ]; then
    (cd "$carried/pieces" && sha256sum --check --quiet SHA256SUMS)
    # Moved when it is whole, so that what was cut off while it was unpacked is not taken for it.
    rm -rf "$carried/new" && mkdir "$carried/new"
    cat "$carried"/pieces/site.tar.xz.* | tar -C "$carried/new" -xJ
    mv "$carried/new/site" "$carried/site" && rmdir "$carried/new"
  fi
  PYTHONPATH=$(cd "$carried/site" && pwd)
  export PYTHONPATH
}

checks() {
  export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1
  "$python" -m tools.gpu_trial "$@" --out "$out"
}

# `unpack && checks` would go on after a digest that does not match: bash ends no function there that `&&` follows.
case ${1:-} in
  prepare) prepare ;;
  first) unpack; checks first --seconds 300 ;;
  stack) unpack; checks stack --seconds 420 ;;
  rehearse) checks "${2:-first}" --seconds 3600 --on-the-cpu "${@:3}" ;;
  *) sed -n '2,10s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
