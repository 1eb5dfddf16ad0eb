#include "supervisor/api/metrics/readiness.h"

#include <string.h>

#include "base/auto.h"
#include "base/err.h"
#include "base/str.h"

static const char *const names[] = {
	[READINESS_SERVICE] = "service", [READINESS_SUPERVISOR] = "supervisor",
	[READINESS_STORE] = "store",     [READINESS_EGRESS] = "egress",
	[READINESS_CONFIG] = "config",   [READINESS_AUDIT] = "audit",
	[READINESS_CANARY] = "canary",   [READINESS_REDIS] = "redis",
	[READINESS_CELERY] = "celery",   [READINESS_PROVIDER] = "provider",
};
_Static_assert(ARRAY_SIZE(names) == READINESS_MAX_, "one name per part");

void readiness_set(struct readiness *readiness, enum readiness_part part, bool ok, const char *text)
{
	ASSERT(part < READINESS_MAX_);
	readiness->part[part].bad = !ok;
	readiness->part[part].text[0] = '\0';
	if (!ok && text)
		(void)str_escape(readiness->part[part].text, sizeof(readiness->part[part].text),
				 text, strlen(text), false);
}

enum readiness_part readiness_first(const struct readiness *readiness)
{
	unsigned int part = 0;

	while (part < READINESS_MAX_ && !readiness->part[part].bad)
		part++;
	return (enum readiness_part)part;
}

const char *readiness_name(enum readiness_part part)
{
	ASSERT(part < READINESS_MAX_);
	return names[part];
}
