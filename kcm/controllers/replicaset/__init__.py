"""The ReplicaSet controller: as many pods as wanted, no more and no fewer."""
