#!/bin/sh
# Applies the manifests beside it in order and waits for each job. Stopped, or failed and mended: run it again.
# A job that is there is left as it is, finished or not: it does not run twice, and what a queue has set in it is not ours
# to take back. To run it anew or otherwise, delete it first; what it has done lies on the volumes and is not lost.
set -eu
cd "$(dirname "$0")"
# Seconds between two looks at a job.
pause=${RESTRAIN_POLL_SECONDS:-15}

say() { printf '%s\n' "$*"; }

stop() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

command -v kubectl > /dev/null || stop "kubectl is not on PATH. Install kubectl 1.29 or newer."

ask() { kubectl -n "$namespace" get "$@" || stop "The cluster does not answer. Run this again when it does."; }

# absent, running, complete or failed, for job/NAME or rayjob/NAME
state() {
  case $1 in
    job/*) fields='{.status.conditions[?(@.status=="True")].type}' ;;
    *) fields='{.status.jobStatus} {.status.jobDeploymentStatus}' ;;
  esac
  found=$(ask "$1" --ignore-not-found -o "jsonpath={.metadata.name} $fields") || exit 1
  case $found in
    "") say absent ;;
    *" Failed"* | *" ValidationFailed"* | *" STOPPED Complete") say failed ;;
    *" Complete"*) say complete ;;
    *) say running ;;
  esac
}

# FILE: what only a cluster's administrator may write
admin() {
  kubectl get namespace "$namespace" > /dev/null ||
    stop "There is no namespace $namespace yet. Once, as the cluster's administrator: kubectl apply --server-side -f $PWD/$1"
}

# FILE: what all experiments of the namespace share
shared() { kubectl apply --server-side -f "$1"; }

# KEY JOB: another experiment may be drawing the same offline pass. Then wait, and find it drawn.
pass() {
  now=$(state "$2") || exit 1
  [ "$now" = absent ] || return 0
  fields='{.metadata.name} {.status.conditions[?(@.status=="True")].type}{"\n"}'
  told=""
  while others=$(ask jobs -l "restrain-pass=$1" -o "jsonpath={range .items[*]}$fields{end}") || exit 1; do
    others=$(say "$others" | grep -v -e ' Complete' -e ' Failed' -e '^$') || return 0
    [ -n "$told" ] || say "The same offline pass is being drawn by $others; waiting for it."
    told=yes
    sleep "$pause"
  done
}

# FILE JOB: apply unless it is there, and wait for its end
step() {
  now=$(state "$2") || exit 1
  case $now in
    absent) kubectl apply --server-side -f "$1" ;;
    running) say "$2 is there already and is not applied again." ;;
  esac
  while now=$(state "$2") || exit 1; [ "$now" = running ]; do
    sleep "$pause"
  done
  case $now in
    complete) say "$2 is complete." ;;
    failed) stop "$2 failed. Its output: kubectl -n $namespace logs job/${2#*/}. When it is mended:" \
      "kubectl -n $namespace delete $2, and run this again." ;;
    *) stop "$2 was deleted. Run this again to start it anew." ;;
  esac
}

