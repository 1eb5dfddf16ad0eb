# shellcheck shell=bash
# needs: java:openjdk-17-jre-headless
# grants: mprotect PROT_EXEC, /proc/self/*, /proc/meminfo and cpuinfo, NUMA calls, a large virtual space, /etc/java-*
set -eux
mkdir /session/java
cd /session/java
java -version 2>&1 | grep -qi openjdk
java -XshowSettings:system -version 2>&1 | grep -qi 'openjdk'
java -Xmx128m -XX:+UseSerialGC -version 2>/dev/null
java -Xmx256m -XX:+UseG1GC -XX:ParallelGCThreads=2 -Xlog:gc -version >/dev/null 2>&1
if command -v javac >/dev/null; then
	cat > Main.java <<'JAVA'
import java.net.*;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
public class Main {
	public static void main(String[] args) throws Exception {
		ExecutorService pool = Executors.newFixedThreadPool(4);
		ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
		Future<Integer> got = pool.submit(() -> server.accept().getInputStream().read());
		try (Socket client = new Socket("localhost", server.getLocalPort())) { client.getOutputStream().write(42); }
		if (got.get() != 42) throw new AssertionError();
		if (!Collections.list(NetworkInterface.getNetworkInterfaces()).stream().map(NetworkInterface::getName)
				.collect(Collectors.toList()).equals(List.of("lo"))) throw new AssertionError("lo");
		Process child = new ProcessBuilder("echo", "child").start();
		if (!new String(child.getInputStream().readAllBytes()).equals("child\n")) throw new AssertionError();
		long sum = IntStream.range(0, 20_000_000).parallel().asLongStream().sum();
		if (sum != 199999990000000L) throw new AssertionError();
		Path file = Files.createTempFile("x", "y");
		try (WatchService watch = FileSystems.getDefault().newWatchService()) {
			file.getParent().register(watch, StandardWatchEventKinds.ENTRY_DELETE);
			Files.delete(file);
			if (watch.poll(10, TimeUnit.SECONDS) == null) throw new AssertionError("watch");
		}
		pool.shutdown();
		System.out.println("works");
	}
}
JAVA
	javac -J-XX:TieredStopAtLevel=1 -d . Main.java
	test "$(java -cp . Main)" = works
fi
echo ok
