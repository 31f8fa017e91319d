"""What kubeadm v1.37 writes into the manifest of kube-controller-manager (cmd/kubeadm phases/controlplane/manifests.go)."""

#: The command line of every cluster.
MANIFEST = [
    "--authentication-kubeconfig=/etc/kubernetes/controller-manager.conf",
    "--authorization-kubeconfig=/etc/kubernetes/controller-manager.conf",
    "--bind-address=127.0.0.1",
    "--client-ca-file=/etc/kubernetes/pki/ca.crt",
    "--cluster-name=kubernetes",
    "--cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt",
    "--cluster-signing-key-file=/etc/kubernetes/pki/ca.key",
    "--controllers=*,bootstrapsigner,tokencleaner",
    "--kubeconfig=/etc/kubernetes/controller-manager.conf",
    "--leader-elect=true",
    "--requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt",
    "--root-ca-file=/etc/kubernetes/pki/ca.crt",
    "--service-account-private-key-file=/etc/kubernetes/pki/sa.key",
    "--use-service-account-credentials=true",
]
#: What is added where the cluster configuration has networks.
NETWORKS = [
    "--allocate-node-cidrs=true",
    "--cluster-cidr=10.244.0.0/16",
    "--service-cluster-ip-range=10.96.0.0/16",
]
