"""ReplicationControllers, run by the ReplicaSet controller."""
