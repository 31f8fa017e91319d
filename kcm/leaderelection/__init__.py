"""Leader election on a Lease: which of several managers may act.

Guarantees, as long as the clocks of the candidates run at nearly the same rate (what they show does not matter) and only
electors write the Lease:
- A candidate takes a held Lease over no earlier than `lease_duration` after it saw the record change for the last time.
- The fence (`LeaderElector.fence`) is open only in the process whose last successful renewal began less than
  `renew_deadline` ago. So between the last write that one leader starts to send and the first one of its successor lie at
  least `lease_duration - renew_deadline`, however long a process was stopped in between.
- A request that hangs cannot keep leadership alive: every attempt ends with the renew deadline.

Not guaranteed:
- That a write which was sent in time also arrives in time: one that is under way for longer than that difference may reach
  the server after the successor's first. Preconditions in the writes themselves are the only remedy.
- That there is a leader at any time, or that the waiting candidates are served in some order.
- Anything about a Lease that a person deletes or empties: a candidate takes it at once, while the old leader learns of it
  with its next renewal, at most `retry_period` plus one request later.
"""
