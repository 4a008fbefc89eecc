"""A real node beside the fake ones: containerd, kubelet and kube-proxy in namespaces that are made
for them and vanish with them.
"""
