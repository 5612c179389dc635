"""The pure part of multi-RPC: calls in the total order, answers to the caller alone.

`table` gathers the answers of the calls made here, `answering` decides which calls are executed
here, `reply_sender` gets answers to their callers by datagram.
"""
