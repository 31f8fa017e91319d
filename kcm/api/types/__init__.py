"""Typed slices of the API's objects: only the fields that the controllers read.

Pods are kept as the slice alone. Objects that are written back (Deployments, ReplicaSets) also keep their JSON, so that a
PUT changes only what it means to change.
"""
