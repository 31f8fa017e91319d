"""A leader whose controllers no longer move must not keep the Lease."""

import sys

from tests.managers import Managers, Namespace, candidate, replica_set

#: kcm with a ReplicaSet controller that holds the event loop for an hour.
BLOCKED = """
import time
from kcm.cmd import main
from kcm.controllers.replicaset.replica_set import ReplicaSetController

async def sync(self, key):
    time.sleep(3600)

ReplicaSetController.sync = sync
main()
"""


async def test_a_leader_whose_controllers_stand_still_ends(ns: Namespace, managers: Managers) -> None:
    leader = managers.start(*candidate(ns.name), program=(sys.executable, "-c", BLOCKED))
    await ns.until(lambda: ns.holder, "it leads")
    holder = ns.holder
    managers.start(*candidate(ns.name))

    await ns.create("replicasets", replica_set(replicas=2))
    assert await leader.exit_status() == 1
    assert 'leaderelection lost/stopped" err="the leader\'s work no longer moves"' in leader.output
    await ns.until(lambda: len(ns.pods) == 2 and ns.holder != holder, "the other acts")
