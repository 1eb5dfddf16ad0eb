# shellcheck shell=bash
# needs: go:golang-go
# grants: threads, epoll, AF_NETLINK ROUTE, HOME for the build cache, execve of what it built in TMPDIR
set -eux
mkdir /session/go
cd /session/go
cat > main.go <<'GO'
package main

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"
)

// A proxy as Go programs write it: bytes go from socket to socket by splice.
func relay(listener net.Listener) {
	go func() {
		from, _ := net.Dial("tcp", listener.Addr().String())
		from.Write(make([]byte, 1<<20))
		from.Close()
	}()
	from, err := listener.Accept()
	if err != nil {
		panic(err)
	}
	go func() {
		to, _ := net.Dial("tcp", listener.Addr().String())
		io.Copy(to, from)
		to.Close()
	}()
	to, err := listener.Accept()
	if err != nil {
		panic(err)
	}
	got, err := io.Copy(io.Discard, to)
	if got != 1<<20 || err != nil {
		panic(fmt.Sprint(got, err))
	}
}

func main() {
	names, err := net.Interfaces()
	if err != nil || len(names) != 1 || names[0].Name != "lo" {
		panic(fmt.Sprint(names, err))
	}
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		panic(err)
	}
	var group sync.WaitGroup
	for i := 0; i < 100; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			peer, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				panic(err)
			}
			peer.Close()
		}()
	}
	for i := 0; i < 100; i++ {
		peer, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		io.ReadAll(peer)
	}
	group.Wait()
	relay(listener)
	out, err := exec.Command("echo", "child").Output()
	fmt.Print(string(out), err, "\n")
}
GO
cat > go.mod <<'MOD'
module example.invalid/main
MOD
GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local go build -o main .
./main | tail -n 1 | grep -q nil
echo ok
