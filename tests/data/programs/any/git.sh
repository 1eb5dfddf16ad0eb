# shellcheck shell=bash
# needs: git
# grants: link, rename, fchmod, mmap, fork and exec of hooks; HOME for the configuration
set -eux
git config --global user.name 'A U Thor'
git config --global user.email user@example.invalid
git config --global init.defaultBranch main
git init -q /session/git/one
cd /session/git/one
printf '#!/bin/sh\necho hook > "$PWD/hook-ran"\n' > .git/hooks/pre-commit
chmod +x .git/hooks/pre-commit
for n in 1 2 3; do
	echo "$n" > file
	git add file
	git commit -qm "commit $n"
done
test "$(cat hook-ran)" = hook
test "$(git rev-list --count HEAD)" = 3
git clone -q . ../two
cd ../two
git switch -qc topic
echo topic > topic
git add topic
git commit -qm topic
git push -q origin topic
git -C ../one merge -q topic
git worktree add -q ../three topic~1
git stash list
git clone -q --depth 1 "file:///session/git/one" ../shallow
git gc -q
git fsck --strict 2>/dev/null
git -c diff.external= diff --stat HEAD~1 | grep -q topic
git daemon --base-path=/session/git --export-all --listen=127.0.0.1 --reuseaddr --detach --pid-file="$TMPDIR/git.pid"
for _ in $(seq 50); do git clone -q git://127.0.0.1/one/.git ../four 2>/dev/null && break; sleep 0.1; done
test "$(git -C ../four rev-list --count HEAD)" = 4
kill "$(cat "$TMPDIR/git.pid")"
echo ok
