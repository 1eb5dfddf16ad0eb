# grants: epoll, eventfd, pidfd_open, AF_UNIX and loopback TCP listeners, signals by wake-up descriptor
"""asyncio: servers, subprocesses, signals, timers, executors."""
import asyncio
import os
import signal
import sys


async def echo(reader, writer):
    writer.write((await reader.readline()).upper())
    await writer.drain()
    writer.close()


async def ask(reader, writer):
    writer.write(b"hello\n")
    answer = await reader.readline()
    writer.close()
    return answer


async def main():
    tcp = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = tcp.sockets[0].getsockname()[1]
    assert await ask(*await asyncio.open_connection("localhost", port)) == b"HELLO\n"
    local = await asyncio.start_unix_server(echo, os.environ["TMPDIR"] + "/loop.sock")
    path = local.sockets[0].getsockname()
    assert await ask(*await asyncio.open_unix_connection(path)) == b"HELLO\n"
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", f"print({n} * {n})", stdout=asyncio.subprocess.PIPE)
        for n in range(4)
    ]
    outputs = await asyncio.gather(*(child.communicate() for child in children))
    assert [int(out) for out, _ in outputs] == [0, 1, 4, 9]
    caught = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, caught.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.wait_for(caught.wait(), 10)
    # The watcher that modern loops use by default.
    pidfd = os.pidfd_open(os.getpid())
    signal.pidfd_send_signal(pidfd, 0)
    os.close(pidfd)
    assert await asyncio.to_thread(os.getpid) == os.getpid()
    print("ok")


asyncio.run(main())
