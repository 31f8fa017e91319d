"""The Deployment controller. Follows pkg/controller/deployment.

Deciding is in pure functions: `util` and `conditions` (numbers, annotations, revisions, conditions), the `plan_*` functions,
`calculate_status` and `rollout_status`. Acting is a few lines over a `DeploymentSync`, which holds the working copy of one
Deployment for one sync.
"""
