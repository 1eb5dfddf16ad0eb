# sandboxd-provider where its engine is a service elsewhere: connections to that service and to the name
# servers, requests of the api worker, streams between the two. It has the service's credential and no socket
# of this host.
profile worker-remote
kind worker

filter worker
default errno ENOSYS
include own.rules
allow @service

# the service, and questions for its name; nothing listens, and there are no other families
socket: arg0 in { AF_INET AF_INET6 } and arg1 & SOCK_TYPE_MASK in { SOCK_STREAM SOCK_DGRAM } and arg2 in { 0 IPPROTO_TCP IPPROTO_UDP } allow
socket: else errno EAFNOSUPPORT
allow connect bind sendmmsg recvmmsg
# handles and streams; the HTTP client wakes itself up with one
socketpair: arg0 == AF_UNIX allow
socketpair: else errno EAFNOSUPPORT
# certificates and the hosts file, of the worker's root
openat: arg2 & OPEN_WRITES == 0 allow
openat: else errno EACCES
allow newfstatat access
# how many processors there are
allow prlimit64 sysinfo sched_getaffinity sched_yield
prctl: arg0 in { PR_SET_NAME PR_GET_NAME PR_GET_DUMPABLE PR_SET_VMA } allow
prctl: else errno EPERM
