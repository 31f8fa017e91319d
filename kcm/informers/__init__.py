"""Local copies of the server's objects, kept by list and watch.

Guarantees:
- A store is changed before any handler hears of the change; a handler hears of each object's changes in order, one at a time.
- Whatever was missed while disconnected arrives: a vanished object as a tombstone with its last known state.
- `has_synced` turns true once, after the first snapshot is stored and every handler has seen it.
- An exception in a handler or reflector ends the informer's task; nobody goes on with half a cache.

Not guaranteed: that a handler sees every state in between, or that the store is as new as the server.

Objects in a store are shared and frozen.
"""
