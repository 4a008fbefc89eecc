#!/usr/bin/env bash
# A kind cluster with the operator, Prometheus, kube-state-metrics and two sample jobs:  deploy/kind/up.sh
# Needs kind, docker, kubectl and helm, and a network. Remove it all:  kind delete cluster --name mofa
# KUBE_STATE_METRICS is where its manifests are, as `kubectl apply -k` takes them.
set -euo pipefail
cd "$(dirname "$0")/../.."

manifests="${KUBE_STATE_METRICS:-https://github.com/kubernetes/kube-state-metrics?ref=v2.17.0}"
labels='pods=[jobset.sigs.k8s.io/jobset-name,jobset.sigs.k8s.io/restart-attempt,jobset.sigs.k8s.io/job-global-index,batch.kubernetes.io/job-completion-index,training.kubeflow.org/job-name,volcano.sh/job-name,ray.io/cluster,leaderworkerset.sigs.k8s.io/name],nodes=[*]'

for tool in kind docker kubectl helm; do
  command -v "$tool" >/dev/null || { echo "up.sh: $tool is not on PATH" >&2; exit 1; }
done
kind get clusters | grep -qx mofa || kind create cluster --config deploy/kind/demo.yaml --wait 180s
kubectl config use-context kind-mofa

docker build --file operator/Dockerfile --tag mofa-advisor:kind .
kind load docker-image mofa-advisor:kind --name mofa

kubectl apply --filename deploy/kind/prometheus.yaml
kubectl create configmap mofa-rules --namespace monitoring --from-file deploy/rules/mofa-recording.yaml \
  --from-file deploy/rules/mofa-alerts.yaml --dry-run=client --output yaml | kubectl apply --filename -
kubectl apply --kustomize "$manifests"
kubectl patch deployment kube-state-metrics --namespace kube-system --patch \
  "{\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"name\":\"kube-state-metrics\",\"args\":[\"--metric-labels-allowlist=$labels\"]}]}}}}"

# Definitions first: a release alone would not change those that are there.
kubectl apply --server-side --filename crds
kubectl wait --for=condition=Established --timeout=60s --filename crds
kubectl create namespace mofa-system --dry-run=client --output yaml | kubectl apply --filename -
kubectl label namespace mofa-system --overwrite pod-security.kubernetes.io/enforce=restricted
helm upgrade --install mofa-advisor charts/mofa-advisor --namespace mofa-system \
  --values deploy/kind/values.yaml --set crds.enabled=false --wait --timeout 5m
kubectl rollout status deployment/prometheus --namespace monitoring --timeout 5m
helm test mofa-advisor --namespace mofa-system

kubectl apply --filename deploy/kind/samples.yaml
kubectl wait trainingjob/llama3-8b --namespace default --for=condition=Ready --timeout=120s
kubectl get clusterprofiles,trainingjobs --all-namespaces
echo "Page:       kubectl -n mofa-system port-forward svc/mofa-advisor 8080"
echo "Prometheus: kubectl -n monitoring port-forward svc/prometheus 9090"
