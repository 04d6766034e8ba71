#!/bin/sh
# Applies the manifests beside it in order, waits for each job, and says why one waits. Stopped, or failed and corrected: run it
# again. A job that is there is left as it is, finished or not: it does not run twice, and what a queue has set in it is not ours
# to take back. To run it anew or otherwise, delete it first; what it has done lies on the volumes and is not lost.
#   --keep-platform    keep the namespace's platform as it is, where it was rendered with other settings
#   --despite-premise  train although `restrain premise` warns
#   --without-gpu-check  do not try the GPUs, as where another experiment has done so
#   --files            start the pod through which files are copied, and nothing after it
set -eu
cd "$(dirname "$0")"
# Seconds between two looks at a job, and until what cannot end well by itself is given up.
pause=${RESTRAIN_POLL_SECONDS:-15}
patience=${RESTRAIN_PATIENCE_SECONDS:-600}
oldest=30
keep="" despite="" unchecked="" files=""

say() { printf '%s\n' "$*"; }

stop() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

for word; do
  case $word in
    --keep-platform) keep=yes ;;
    --despite-premise) despite=yes ;;
    --without-gpu-check) unchecked=yes ;;
    --files) files=yes ;;
    *) stop "there is no option $word: --keep-platform, --despite-premise, --without-gpu-check and --files are all." ;;
  esac
done
[ -z "$files" ] || [ -n "$(find . -name '*-files.yaml')" ] || stop "this rendering has no step files. Render it without --only."
command -v kubectl > /dev/null || stop "kubectl is not on PATH. Install kubectl 1.29 or newer."

ask() { kubectl -n "$namespace" get "$@" || stop "The cluster does not answer. Run this again when it does."; }

# The cluster answers, and is not older than the fields that the manifests have.
ready() {
  version=$(kubectl version 2> /dev/null | sed -n 's/^Server Version: v1\.\([0-9]*\).*/\1/p')
  [ -n "$version" ] || stop "The cluster does not answer. Run this again when it does."
  [ "$version" -ge "$oldest" ] || stop "The cluster has Kubernetes 1.$version; 1.$oldest or newer is needed."
}

# What operators of the manifests add to a cluster, looked for before anything is downloaded
operators() {
  ! grep -qx 'kind: RayJob' ./*.yaml || needs rayjobs
  ! grep -qx 'kind: PodMonitor' ./*.yaml || needs podmonitors
  [ -z "$queue" ] || needs "localqueues/$queue"
}

# KIND or KIND/NAME: of an operator
needs() {
  kubectl -n "$namespace" get "$1" -o name > /dev/null 2> /dev/null && return
  case $1 in
    rayjobs) how="Install KubeRay, or use the overlay single-node or single-node-8gpu" ;;
    localqueues/*) how="Install Kueue and make the queue, or use the overlay 8xa100-80g" ;;
    *) how="Install prometheus-operator, or render with --no-monitoring" ;;
  esac
  stop "There are no $1 in $namespace that you may see. $how."
}

# absent, waiting, running, complete or failed, for job/NAME or rayjob/NAME
state() {
  case $1 in
    job/*) fields='{.status.conditions[?(@.status=="True")].type} {.status.ready}' ;;
    *) fields='{.status.jobStatus} {.status.jobDeploymentStatus}' ;;
  esac
  found=$(ask "$1" --ignore-not-found -o "jsonpath={.metadata.name} $fields") || exit 1
  case $found in
    "") say absent ;;
    *" Failed"* | *" ValidationFailed"* | *" STOPPED Complete") say failed ;;
    *" Complete"*) say complete ;;
    *" Running" | *" "[1-9]*) say running ;;
    *) say waiting ;;
  esac
}

# WHAT: the digest of what it was made from, after a word that says that it is there
digest() { kubectl -n "$namespace" get "$1" --ignore-not-found -o 'jsonpath={.metadata.name} {.metadata.annotations.restrain-digest}'; }

# WHAT FILE FOUND DIGEST: nothing of what all experiments share changes by accident
agree() {
  case $3 in
    *" $4") say "$1 is there, as it is rendered here." ;;
    *)
      [ -n "$keep" ] || stop "$1 is there and was rendered with other settings; all experiments of the namespace have it. Render" \
        "with the same --cluster FILE and overlay; or run this with --keep-platform to keep what is there; or, to" \
        "change it for all of them: kubectl apply --server-side -f $PWD/$2"
      say "$1 is there with other settings, and stays as it is." ;;
  esac
}

# FILE DIGEST: what only a cluster's administrator may write
admin() {
  found=$(digest "namespace/$namespace") || stop "The cluster does not answer. Run this again when it does."
  [ -n "$found" ] ||
    stop "There is no namespace $namespace yet. Once, as the cluster's administrator: kubectl apply --server-side -f $PWD/$1"
  agree "The namespace $namespace" "$1" "$found" "$2"
  operators
}

# FILE DIGEST: policies, accounts, monitors
platform() {
  found=$(digest configmap/runtime-environment) || stop "The cluster does not answer. Run this again when it does."
  if [ -z "$found" ]; then
    kubectl apply --server-side -f "$1"
  else
    agree "The platform in $namespace" "$1" "$found" "$2"
  fi
}

# FILE: a claim is made where it is absent; of one that is there, nothing but the size can change
claims() {
  kubectl get -f "$1" > /dev/null 2>&1 && return
  kubectl create -f "$1" || kubectl get -f "$1" > /dev/null || stop "The claims of $1 cannot be made."
}

# FILE: applied each time
shared() { kubectl apply --server-side -f "$1"; }

# FILE: the pod through which files are copied, and nothing after it
files() {
  [ -n "$files" ] || return 0
  shared "$1"
  kubectl wait --for=condition=Ready --timeout=10m -f "$1" || stop "The pod does not start: kubectl describe -f $PWD/$1"
  say "It ends after four hours. When all files are copied: kubectl delete -f $PWD/$1"
  exit 0
}

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

# COMPONENT: pods that are deleted and do not end, as on a node that is lost; a Job replaces none before it has ended
lingering() {
  fields='pod {.metadata.name}: Terminating since {.metadata.deletionTimestamp} on node {.spec.nodeName}{"\n"}'
  ask pods -l "restrain-experiment=$experiment,app.kubernetes.io/component=$1" \
    -o "jsonpath={range .items[?(@.metadata.deletionTimestamp)]}$fields{end}"
}

# COMPONENT JOB: why its pods do not run, in the cluster's own words, a line for each reason
why() {
  name=${2#*/}
  waiting='{range .status.initContainerStatuses[*]}{.state.waiting.reason} {.state.waiting.message}{end}'
  waiting="$waiting{range .status.containerStatuses[*]}{.state.waiting.reason} {.state.waiting.message}{end}"
  fields='pod {.metadata.name}: {.status.conditions[?(@.type=="PodScheduled")].message} '
  pods=$(ask pods -l "restrain-experiment=$experiment,app.kubernetes.io/component=$1" \
    -o "jsonpath={range .items[*]}$fields$waiting{\"\n\"}{end}") || exit 1
  say "$pods" | sed -e 's/ *$//' -e '/:$/d' -e '/^$/d'
  lingering "$1"
  ask pvc -o 'jsonpath={range .items[?(@.status.phase!="Bound")]}claim {.metadata.name}: {.status.phase}{"\n"}{end}'
  # An hour old at most; those about pods that were not made say nothing once there are pods.
  not_made="FailedCreate|FailedToCreate[A-Za-z]*"
  case $2 in job/*) [ -z "$pods" ] || not_made="-" ;; esac
  ask events -o 'jsonpath={range .items[*]}{.involvedObject.name} {.reason}: {.message}{"\n"}{end}' |
    grep -E "^${name}[^ ]* ($not_made|FailedMount|FailedAttachVolume): |^(models|work) (ProvisioningFailed|FailedBinding): " |
    sed -e 's|pods "[^"]*"|pods|' | sort -u | sed -e 's/\(.*requested: [^:]*nvidia.com\/gpu=\([0-9]*\),.*limited: [^:]*nvidia.com\/gpu=\([0-9]*\).*\)/\2 \3 \1/' |
    while read -r asked limit line; do
      case $asked$limit in
        *[!0-9]*) say "$asked $limit $line" ;;
        *) if [ "$asked" -gt "$limit" ]; then say "$line (more than the whole quota)"; else say "$line"; fi ;;
      esac
    done
  [ -z "$queue" ] || kubectl -n "$namespace" get workloads -o "jsonpath={range .items[?(@.metadata.ownerReferences[0].name==\"$name\")]}queue \
$queue: {.status.conditions[?(@.type==\"QuotaReserved\")].message}{\"\n\"}{end}" 2> /dev/null || :
}

# What ends well by nobody's waiting.
hopeless='ErrImage|ImagePullBackOff|InvalidImageName|CreateContainer(Config)?Error|RunContainerError|CrashLoopBackOff'
hopeless="$hopeless|storageclass.* not found|no storage class is set|persistentvolumeclaim .* not found"
hopeless="$hopeless|(serviceaccount|configmap) .* not found|violates PodSecurity|more than the whole quota|> maximum capacity"

# JOB REASONS: says why it waits whenever that changes, and gives up what has been hopeless for long enough
explain() {
  if [ "$2" != "$said" ] && [ -n "$2" ]; then
    say "$1 waits:"
    say "$2" | sed 's/^/  /'
  fi
  said=$2
  first=$(say "$2" | grep -E "$hopeless" | head -n 1)
  [ -n "$first" ] || { since=""; return 0; }
  since=${since:-$(date +%s)}
  [ $(($(date +%s) - since)) -lt "$patience" ] ||
    stop "$1 cannot run: $first. Correct that. Where the job itself is wrong: kubectl -n $namespace delete $1. Then run this again."
}

# JOB: its last line of output is printed and kept in an annotation, so that `kubectl get` can show it
progress() {
  line=$(kubectl -n "$namespace" logs "job/${1#*/}" --tail=1 2> /dev/null | cut -c -200) || line=""
  [ -n "$line" ] && [ "$line" != "$last" ] || return 0
  last=$line
  say "  $line"
  kubectl -n "$namespace" annotate --overwrite "$1" "restrain-progress=$line" > /dev/null || :
}

# COMPONENT JOB: the controller's reason, and the output of the pod that failed last
failure() {
  case $2 in
    job/*) fields='{.status.conditions[?(@.type=="Failed")].reason}: {.status.conditions[?(@.type=="Failed")].message}' ;;
    *) fields='{.status.reason}: {.status.message}' ;;
  esac
  say "$2 failed. $(ask "$2" -o "jsonpath=$fields")"
  pod=$(ask pods -l "restrain-experiment=$experiment,app.kubernetes.io/component=$1" --field-selector status.phase=Failed \
    --sort-by=.metadata.creationTimestamp -o name | tail -n 1)
  [ -n "$pod" ] || return 0
  say "The end of the output of $pod:"
  kubectl -n "$namespace" logs "$pod" --tail=40 | sed 's/^/  /'
}

# FILE JOB DIGEST: apply unless it is there, and wait for its end
step() {
  component=${1#*-} component=${component%.yaml} said="" since="" last=""
  now=$(state "$2") || exit 1
  case $now in
    absent) kubectl apply --server-side -f "$1" ;;
    *)
      made=$(digest "$2") || exit 1
      case $made in
        *" $3" | *" ") ;;
        *) stop "$2 is there, $now, and was made from another configuration than $1. Give this one a folder of its own" \
          "(--set run_dir=runs/NAME), or give the other up: kubectl -n $namespace delete $2, and run this again." ;;
      esac
      [ "$now" = complete ] || [ "$now" = failed ] || say "$2 is there already and is not applied again." ;;
  esac
  before=""
  while now=$(state "$2") || exit 1; [ "$now" = running ] || [ "$now" = waiting ]; do
    # Every job waits for a moment.
    case $before-$now in
      waiting-waiting)
        reasons=$(why "$component" "$2") || exit 1
        explain "$2" "$reasons" ;;
      *-running)
        progress "$2"
        reasons=$(lingering "$component") || exit 1
        explain "$2" "$reasons" ;;
    esac
    before=$now
    sleep "$pause"
  done
  case $now in
    complete) say "$2 is complete." ;;
    failed)
      failure "$component" "$2"
      stop "$2 failed. All its output: kubectl -n $namespace logs -l batch.kubernetes.io/job-name=${2#*/} --tail=-1. Once the cause is corrected:" \
        "kubectl -n $namespace delete $2, and run this again." ;;
    *) stop "$2 was deleted. Run this again to start it anew." ;;
  esac
}

# JOB: whether it has begun; no job has not
begun() {
  [ -n "$1" ] || return 1
  now=$(state "$1") || exit 1
  [ "$now" != absent ]
}

# FILE JOB DIGEST TRAINING: tries the GPUs, and NCCL between them, before the first long run
gpu_check() {
  [ -z "$unchecked" ] && ! begun "${4:-}" || return 0
  step "$1" "$2" "$3"
  kubectl -n "$namespace" logs "job/${2#*/}" --tail=40 || :
}

# FILE JOB DIGEST TRAINING: what the offline pass says of the training that comes next, unless that has begun
premise() {
  ! begun "${4:-}" || return 0
  step "$1" "$2" "$3"
  told=$(kubectl -n "$namespace" logs "$2") ||
    stop "The output of $2 is gone. kubectl -n $namespace delete $2, and run this again."
  say "$told"
  [ -n "$despite" ] || ! say "$told" | grep -q '^warning: ' ||
    stop "restrain premise warns: read its lines above and docs/concepts/premise.md. To train all the same: run this with" \
      "--despite-premise."
}

