"""Queues of keys that wait to be reconciled. Follows client-go util/workqueue.

Guarantees:
- Fair: keys come out in the order in which they became due.
- Stingy: a key that waits is not queued again; one that was added while a worker held it runs once more, however often it was
  added.
- Exclusive: no two workers hold the same key.
- Not lossy: a key that was added comes out, unless it was delayed and the queue is shut down first.

Not guaranteed: that every `add` leads to a run of its own, that a delayed key comes out before one which became due later
but was added directly, and anything at all across threads: a queue belongs to one event loop.
"""
