# shellcheck shell=bash
# needs: gcc g++:g++ make ar:binutils
# grants: mmap, execve in /session and /tmp (neither is noexec), the job server's pipe, vfork
set -eux
mkdir /session/gcc
cd /session/gcc
cat > lib.c <<'C'
int twice(int n) { return 2 * n; }
C
cat > main.c <<'C'
#include <pthread.h>
#include <stdio.h>
int twice(int n);
static void *run(void *n) { *(int *)n = twice(*(int *)n); return NULL; }
int main(void)
{
	pthread_t thread;
	int n = 21;
	pthread_create(&thread, NULL, run, &n);
	pthread_join(thread, NULL);
	return printf("%d\n", n) < 0;
}
C
cat > plus.cc <<'C'
#include <iostream>
#include <stdexcept>
#include <string>
int main() { try { throw std::runtime_error("thrown"); } catch (const std::exception &e) { std::cout << e.what() << "\n"; } }
C
cat > Makefile <<'MAKE'
all: static shared plus
static: main.o libstatic.a
	gcc -static -o $@ main.o -L. -lstatic -lpthread
shared: main.o libshared.so
	gcc -o $@ main.o -L. -lshared -Wl,-rpath,/session/gcc -flto
libstatic.a: lib.o
	ar rcs $@ $^
libshared.so: lib.c
	gcc -O2 -fPIC -shared -o $@ $^
plus: plus.cc
	g++ -O1 -o $@ $^
%.o: %.c
	gcc -O2 -pipe -c -o $@ $<
MAKE
make -s -j4
test "$(./static):$(./shared):$(./plus)" = 42:42:thrown
cp static /tmp/static
test "$(/tmp/static)" = 42
# Address and undefined-behaviour checks work; the leak check traces its own process, which is refused,
# and the session's LSAN_OPTIONS turn it off.
gcc -fsanitize=address,undefined -o checked lib.c main.c
test "$(./checked)" = 42
echo ok
