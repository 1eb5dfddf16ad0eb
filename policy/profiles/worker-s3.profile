# sandboxd-s3: one job, connections to the configured object store and to the name servers, one report, then
# it exits.
profile worker-s3
kind worker

filter worker
default errno ENOSYS
include own.rules
allow @service

# the store, and questions for its name; nothing listens, and there are no other families
socket: arg0 in { AF_INET AF_INET6 } and arg1 & SOCK_TYPE_MASK in { SOCK_STREAM SOCK_DGRAM } and arg2 in { 0 IPPROTO_TCP IPPROTO_UDP } allow
socket: else errno EAFNOSUPPORT
allow connect bind sendmmsg recvmmsg
# the HTTP client wakes itself up with one
socketpair: arg0 == AF_UNIX allow
socketpair: else errno EAFNOSUPPORT
# the object's file
allow ftruncate
# certificates and the hosts file, of the worker's root
openat: arg2 & OPEN_WRITES == 0 allow
openat: else errno EACCES
allow newfstatat access
# how many processors there are
allow prlimit64 sched_getaffinity sysinfo sched_yield
prctl: arg0 in { PR_SET_NAME PR_GET_NAME PR_GET_DUMPABLE PR_SET_VMA } allow
prctl: else errno EPERM
