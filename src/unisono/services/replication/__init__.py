"""Persistent replication [TRA §6]: a total order of updates that outlives every process. Pure.

The algorithm is Amir and Tutu, *From Total Order to Database Replication*, ICDCS 2002: end-to-end
acknowledgments only after a change of view. Its names: an update is *red* when it is deposited,
*yellow* when it is ordered in a component whose fate is not known, *green* when its position is
final, *white* when all members have it. [FTO §…] cites it.
"""
