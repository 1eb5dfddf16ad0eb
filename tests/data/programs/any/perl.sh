# shellcheck shell=bash
# needs: perl
# grants: /etc/perl, fork, sockets
set -eu
perl -MIO::Socket::INET -MPOSIX -MTime::HiRes=usleep -MStorable -MDigest::SHA=sha256_hex -MSys::Hostname -e '
	my $listener = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") or die $!;
	my $pid = fork // die;
	unless ($pid) { my $s = IO::Socket::INET->new(PeerAddr => "localhost:" . $listener->sockport) or die; print $s "hi\n"; exit 0 }
	my $peer = $listener->accept or die; my $line = <$peer>; waitpid $pid, 0;
	die unless $line eq "hi\n" && $? == 0 && hostname() && (getpwuid $<)[0] eq "user";
	local $SIG{ALRM} = sub { die "timeout\n" }; eval { alarm 1; POSIX::pause(); }; die unless $@ eq "timeout\n";
	die unless length sha256_hex("x") == 64; print "ok\n"'
