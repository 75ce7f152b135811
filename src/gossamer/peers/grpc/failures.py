"""Why a call to another peer failed, and what to do about it, in words of its own and not in gRPC's."""

import re

import grpc

REFUSED = "connection refused: its machine answers, but nothing listens at that port"
NO_ANSWER = "no answer: nothing comes back from there"
NO_HOST = "no machine is known by that name"
OTHER_AUTHORITY = "its certificate is not of this group's authority"
OTHER_NAME = "the certificate there is that of another peer"
EXPIRED = "its certificate is not good at this time"
NOT_A_PEER = "what listens there is not a peer"
NO_CONNECTION = "it has opened no connection to this peer"  # and has no address
CLOSED = "it ended the connection"

_FOUND_BY = {  # what gRPC's text has, in small letters; the first that fits
    "refused": REFUSED,
    "certificate has expired": EXPIRED,
    "certificate is not yet valid": EXPIRED,
    "hostname verification": OTHER_NAME,
    "certificate": OTHER_AUTHORITY,  # of whatever else is wrong with it, gRPC tells in the words of its TLS library
    "wrong_version_number": NOT_A_PEER,
    "endpoint closing": NO_ANSWER,  # this end's, which has waited long enough
    "fd shutdown": NO_ANSWER,
    "handshake": CLOSED,
    "timed out": NO_ANSWER,
    "timeout": NO_ANSWER,
    "deadline exceeded": NO_ANSWER,
    "errors resolving": NO_HOST,
    "dns resolution failed": NO_HOST,
    "socket closed": CLOSED,
    "connection reset": CLOSED,
    "broken pipe": CLOSED,
    "recvmsg": CLOSED,
}
_ADVICE = {
    REFUSED: "start it, if it was not started yet; else see its port in peers.toml",
    NO_ANSWER: "see its firewall and its address in peers.toml; or its machine is off or hangs",
    NO_HOST: "correct its address in peers.toml",
    OTHER_AUTHORITY: "its keys and this peer's were made by different authorities: ca.pem must be the same at both, so "
    "invite it, or make its keys, where the others' were made",
    OTHER_NAME: "correct its address in peers.toml, or the keys there",
    EXPIRED: "renew it, or set the clocks",
    CLOSED: "it may just have stopped; if it runs, it does not take this peer's certificate, and ca.pem must be the "
    "same at both",
    NO_CONNECTION: "start it, if it was not started yet; else its log says whom it cannot reach",
    NOT_A_PEER: "correct its address in peers.toml",
}
_OTHERWISE = "see its firewall, port and address"
_PREFIX = re.compile(r"^(?:[A-Z_]+: )?(?:(?:ipv[46]|unix):\S+: )?")  # what gRPC says of the address that it tried
_SENTENCES = (  # what our own servers say
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)
NOT_STARTED = (REFUSED, NO_CONNECTION)  # most likely
ANSWERS = (OTHER_AUTHORITY, OTHER_NAME, EXPIRED, NOT_A_PEER, CLOSED)  # there is someone at the address


def reason_of(error: Exception) -> str:
    if isinstance(error, KeyError):
        return "it is not in the group any more"
    if not isinstance(error, grpc.RpcError):
        return str(error)
    told = (error.details() or "").rpartition("last error: ")[2]
    if error.code() not in _SENTENCES:
        for words, reason in _FOUND_BY.items():
            if words in told.lower():
                return reason
    return _PREFIX.sub("", told)[:300] or error.code().name.lower().replace("_", " ")


def advice_for(reason: str) -> str:
    if " is not connected to " in reason:  # as a relay says
        return _ADVICE[NO_CONNECTION]
    return _ADVICE.get(reason, _OTHERWISE)
