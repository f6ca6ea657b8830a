"""Durable runs: what is settled also goes to disk, so that a run survives the death of everybody.

The disk is one more *holder* of every slice's snapshots (``messages.DISK``); the replica that owns the slice answers
for it. Being a holder is all that is needed: a cut becomes safe only when every holder has settled it, and producers
settle only what their consumers are safe of. So on disk, as everywhere, a producer's settled cut is never above its
consumers', and a whole cluster that comes back with each slice at its own settled cut is consistent: every producer
can give what its consumers ask for.

The disk needs to have what is settled and nothing more, because that is all that anybody resumes from. A copy above it
waits in the memory of the replica (which has it anyway) and is acknowledged at once; ``Settle`` is acknowledged when
what it covers is on the disk: written under another name, synced, renamed, the folder synced.

- ``files``: one file, with its checksum: whole and right, or damaged;
- ``shelf``: the files of one slice, and how they make up its settled snapshot;
- ``disk``: the thread that writes them, and what the machine hears of it;
- ``kept``: the run as a whole: which topology it is of, whether it has ended, who may go on with it.

Below the folder: ``run.state`` (the manifest), ``lock``, and for each run ``run-<id>/<operator>/<slice>/`` and
``run-<id>/journal/``.
"""
