# shellcheck shell=bash
# needs: npm node:nodejs
# grants: HOME for its cache, scripts of packages, links
set -eux
mkdir -p /session/npm/lib/bin /session/npm/app
cd /session/npm
cat > lib/package.json <<'JSON'
{"name": "lib", "version": "1.0.0", "bin": {"lib": "bin/lib.js"}, "scripts": {"postinstall": "echo installed > postinstall"}}
JSON
printf '#!/usr/bin/env node\nconsole.log("lib says hello")\n' > lib/bin/lib.js
printf '{"name": "app", "version": "1.0.0", "scripts": {"test": "lib"}}\n' > app/package.json
cd lib
npm pack --silent --offline >/dev/null
cd ../app
npm install --offline --no-audit --no-fund --silent --no-update-notifier ../lib/lib-1.0.0.tgz
test "$(cat node_modules/lib/postinstall)" = installed
npm test --silent | grep -qx 'lib says hello'
echo ok
