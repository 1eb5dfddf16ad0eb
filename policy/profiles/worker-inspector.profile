# The egress worker's inspector: reads what sessions wrote and answers on the one socket it has. It can
# make no descriptor of any kind, and receives none.
profile worker-inspector
kind worker

filter worker
default errno ENOSYS
include own.rules

# one message in, one out; the log
allow recvmsg sendmsg write
# start: its socket takes a low number, the policy image and all else are closed
allow dup2 dup close close_range fstat
# abort()
allow tgkill
