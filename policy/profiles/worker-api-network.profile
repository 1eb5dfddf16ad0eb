# sandboxd-api where it is a client of servers (PostgreSQL, Redis): as worker-api, and it connects by TCP and
# UDP, to any address.
profile worker-api-network
kind worker

filter worker
default errno ENOSYS
include own.rules
include api.rules
allow @service

# connections to those servers, and questions for their names; nothing listens, and there are no other families
socket: arg0 in { AF_INET AF_INET6 } and arg1 & SOCK_TYPE_MASK in { SOCK_STREAM SOCK_DGRAM } and arg2 in { 0 IPPROTO_TCP IPPROTO_UDP } allow
socket: else errno EAFNOSUPPORT
allow connect
