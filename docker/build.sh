#!/usr/bin/env bash
# Builds and pushes the images, and writes the digests that the registry answers into k8s/components/images.
set -euo pipefail

usage() {
  cat <<'END'
usage: docker/build.sh REGISTRY [--tag TAG] [--only train|reward] [--full] [--pip-config FILE] [--sign KEY]

  REGISTRY           where to push: registry.example/team
  --tag TAG          default: the version of pyproject.toml
  --only IMAGE       one of the two images: train or reward
  --full             the training image with nvcc and flash-attn, for packing: hours on few cores
  --pip-config FILE  a pip.conf, where the package index is not the public one; it does not stay in the image
  --sign KEY         sign what was pushed with cosign and this key: a file, or what cosign takes of a key service

Each image is pushed with its SBOM and its provenance. Needs docker with buildx, logged in to the registry. The kustomization changes after all builds have ended well, or not at all.
END
}

die() {
  echo "error: $*" >&2
  exit 2
}

root=$(cd "$(dirname "$0")/.." && pwd)
kustomization=$root/k8s/components/images/kustomization.yaml
slim_base=docker.io/library/ubuntu:24.04
full_base=docker.io/nvidia/cuda:13.0.2-devel-ubuntu24.04
reward_base=docker.io/library/python:3.11-slim-bookworm

registry='' tag='' target=slim secret=() key=''
images=(train reward)
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit ;;
    --tag | --only | --pip-config | --sign)
      [ $# -ge 2 ] || die "$1 needs a value."
      case $1 in
        --tag) tag=$2 ;;
        --only)
          case $2 in train | reward) images=("$2") ;; *) die "--only is $2: it is train or reward." ;; esac ;;
        --pip-config)
          [ -r "$2" ] || die "--pip-config: $2 cannot be read."
          secret=(--secret "id=pip-config,src=$2") ;;
        --sign)
          command -v cosign >/dev/null || die "--sign: cosign is not on PATH. Install it, or leave --sign out."
          key=$2 ;;
      esac
      shift ;;
    --full) target=full ;;
    -*) die "there is no option $1. See docker/build.sh --help." ;;
    *)
      [ -z "$registry" ] || die "two registries are named: $registry and $1."
      registry=${1%/} ;;
  esac
  shift
done
[ -n "$registry" ] || { usage >&2; exit 2; }
[[ $registry =~ ^[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*$ ]] || die "$registry is no registry: write registry.example/team."
[ -n "$tag" ] || tag=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/pyproject.toml")
[[ $tag =~ ^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$ ]] || die "$tag is no tag."
command -v docker >/dev/null || die "docker is not on PATH. Install it, with buildx."
docker buildx version >/dev/null 2>&1 || die "this docker has no buildx. Install the plug-in (Debian: docker-buildx)."

# In a command substitution `set -e` is off: what may fail there says `|| exit`.
is_digest() { [[ $1 =~ ^sha256:[0-9a-f]{64}$ ]]; }

# NAME:TAG@DIGEST as the registry has it now.
pinned() {
  local digest
  digest=$(docker buildx imagetools inspect "$1" --format '{{.Manifest.Digest}}') || die "$1 was not found in its registry."
  is_digest "$digest" || die "the registry's digest of $1 is '$digest'."
  echo "$1@$digest"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Builds and pushes IMAGE from BASE, with the rest of the arguments; prints the digest that was pushed.
build() {
  local image=$1 base=$2 digest
  shift 2
  base=$(pinned "$base") || exit
  echo "building restrain-$image on $base" >&2
  docker buildx build --platform linux/amd64 --sbom=true --provenance=true --push --metadata-file "$work/$image.json" \
    --file "$root/docker/$image.Dockerfile" --tag "$registry/restrain-$image:$tag" \
    --build-arg "BASE_IMAGE=$base" "${secret[@]}" "$@" "$root" >&2 || exit
  digest=$(sed -n 's/.*"containerimage.digest": *"\([^"]*\)".*/\1/p' "$work/$image.json") || exit
  is_digest "$digest" || die "docker buildx named no digest for restrain-$image."
  echo "$digest"
}

# Prints the kustomization with another place and digest for one image.
with_digest() {
  awk -v name="$1" -v place="$2" -v digest="$3" '
    /^ *- name: / { ours = ($3 == name) }
    ours && /^ *newName: / { sub(/newName: .*/, "newName: " place); changed++ }
    ours && /^ *digest: / { sub(/digest: .*/, "digest: " digest); changed++ }
    { print }
    END { exit changed != 2 }
  '
}

cp "$kustomization" "$work/kustomization.yaml"
for image in "${images[@]}"; do
  base=$reward_base
  more=()
  if [ "$image" = train ]; then
    [ "$target" = full ] && base=$full_base || base=$slim_base
    more=(--target "$target")
  fi
  digest=$(build "$image" "$base" "${more[@]}") || exit
  with_digest "restrain-$image" "$registry/restrain-$image" "$digest" <"$work/kustomization.yaml" >"$work/next.yaml" ||
    die "$kustomization has no entry restrain-$image with newName and digest."
  mv "$work/next.yaml" "$work/kustomization.yaml"
  echo "pushed $registry/restrain-$image@$digest"
  [ -z "$key" ] || cosign sign --yes --key "$key" "$registry/restrain-$image@$digest" ||
    die "cosign did not sign restrain-$image."
done
cat "$work/kustomization.yaml" >"$kustomization.new"
mv "$kustomization.new" "$kustomization"
echo "wrote $kustomization"
