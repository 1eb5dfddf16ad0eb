# sandboxd-helper redis: one request, one TCP connection to the configured server, one report, then it
# exits.
profile worker-redis
kind worker

filter worker
default errno ENOSYS
include own.rules

# io: the request, the server's answers, the report
allow read write close setsockopt
# io_read_file asks for the size
allow fstat newfstatat lseek
socket: arg0 in { AF_INET AF_INET6 } and arg1 & SOCK_TYPE_MASK == SOCK_STREAM and arg2 in { 0 IPPROTO_TCP } allow
socket: else errno EAFNOSUPPORT
allow connect
# abort()
allow tgkill
