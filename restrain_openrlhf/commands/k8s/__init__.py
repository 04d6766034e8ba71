"""From a run's configuration to Kubernetes manifests: layout, experiment, images, and the Kustomize tree under k8s/."""
