# shellcheck shell=bash
# needs: locale:libc-bin
# grants: C.UTF-8, /usr/share/zoneinfo, /etc/localtime
set -eux
test "$LANG" = C.UTF-8
test "$(locale charmap)" = UTF-8
test "$(printf 'ä\n' | wc -m)" = 2
test "$(date -d 1970-01-01T00:00:00Z +%Z)" = UTC
python3 - <<'PY'
import datetime
import locale
import os
import sys
import time
import zoneinfo

assert locale.setlocale(locale.LC_ALL, "") == "C.UTF-8", locale.setlocale(locale.LC_ALL)
assert locale.getpreferredencoding() == sys.getfilesystemencoding().upper() == "UTF-8"
assert time.tzname[0] == "UTC", time.tzname
assert len(zoneinfo.available_timezones()) > 400
noon = datetime.datetime(2026, 7, 1, 12, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
assert noon.utcoffset() == datetime.timedelta(hours=2)
os.environ["TZ"] = "America/New_York"
time.tzset()
assert time.localtime(1782907200).tm_hour == 8, time.localtime(1782907200)
print("grüße")
PY
test "$(TZ=Asia/Tokyo date -d @0 +%H)" = 09
echo ok
