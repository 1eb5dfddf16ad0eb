# sandboxd-egress: accepts what sessions connect to, resolves names, connects, splices. The address
# rules are code and cgroup BPF; here only the kinds of sockets are bounded.
profile worker-egress
kind worker

filter worker
default errno ENOSYS
include own.rules
allow @service

# relay: accept in the session's namespace, connect on the host's, move bytes through a pipe
allow accept4 connect splice pipe2 sendmmsg recvmmsg
# resolver: TCP and UDP to the name servers. Netlink stays out: the worker
allow bind
# knows its name servers and picks no address by itself. TCP and UDP alone: the second line (cgroup) is
# not asked about the connections of other protocols (SCTP). Unix sockets stay out: the supervisor connects
# to those that the operator listed, and abstract ones of the host have no permissions.
socket: arg0 in { AF_INET AF_INET6 } and arg1 & SOCK_TYPE_MASK in { SOCK_STREAM SOCK_DGRAM } and arg2 in { 0 IPPROTO_TCP IPPROTO_UDP } allow
socket: else errno EAFNOSUPPORT
socketpair: arg0 == AF_UNIX allow
socketpair: else errno EAFNOSUPPORT
# the runtime and the resolver read a few files of the worker's root (hosts, certificates)
openat: arg2 & OPEN_WRITES == 0 allow
openat: else errno EACCES
allow newfstatat
# how many descriptors and processors there are
allow prlimit64 sched_getaffinity sysinfo sched_yield
prctl: arg0 in { PR_SET_NAME PR_GET_NAME PR_GET_DUMPABLE PR_SET_VMA } allow
prctl: else errno EPERM
