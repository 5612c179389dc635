"""The pure part of multi-RPC: calls in the total order, answers to the caller alone.

`table` gathers the answers of the calls made here, `answering` decides which calls are executed
here, `reply_sender` gets answers to their callers by datagram.
"""

from unisono.services.calls.answering import Answering
from unisono.services.calls.limits import RpcLimits
from unisono.services.calls.reply_sender import ReplySender
from unisono.services.calls.result import (
    Answers,
    CallFailure,
    CallInterrupted,
    CallResult,
    Reason,
    TooFewAnswers,
)
from unisono.services.calls.table import CallTable, OpenCall

__all__ = [
    "Answering",
    "Answers",
    "CallFailure",
    "CallInterrupted",
    "CallResult",
    "CallTable",
    "OpenCall",
    "Reason",
    "ReplySender",
    "RpcLimits",
    "TooFewAnswers",
]
