"""The reconcilers: take a key from the queue, read the cache, decide, act.

Deciding is pure: functions from objects and an instant to a decision, without an await. Acting carries it out.
"""
