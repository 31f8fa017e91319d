"""Telling people what happened to an object, through the API and without slowing anybody down. Follows client-go tools/record.

Guarantees:
- Recording never waits and never raises.
- Events are written one after another, in the order in which they were recorded.
- What repeats updates one Event; what floods is first combined and then left out, for each object on its own.

Not guaranteed: that an event is written at all. It is dropped when 1000 wait, when the server refuses it, when twelve tries
to send it failed, and at shutdown.
"""
