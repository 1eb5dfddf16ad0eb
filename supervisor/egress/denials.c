#include <string.h>

#include "base/str.h"

#include "supervisor/egress/worker.h"

#define RATE_PER_S 10
#define RATE_BURST 40
#define REPEAT     (10 * USEC_PER_SEC) /* the same is told again after so long, with its count */

uint64_t bucket_fill(struct bucket *bucket, uint64_t per_second, uint64_t burst, usec_t now)
{
	usec_t span = now - bucket->filled_at;
	usec_t rest = 0; /* in which part of one has come */
	uint64_t fresh;

	if (bucket->filled_at == 0) {
		bucket->filled_at = now;
		bucket->left = burst;
		return burst;
	}
	if (span > USEC_PER_SEC) {
		fresh = burst > per_second ? burst : per_second;
	} else {
		fresh = span * per_second / USEC_PER_SEC;
		if (fresh > 0)
			rest = span * per_second % USEC_PER_SEC / per_second;
	}
	if (fresh > 0) {
		bucket->filled_at = now - rest;
		bucket->left = burst - bucket->left < fresh ? burst : bucket->left + fresh;
	}
	return bucket->left;
}

static uint64_t hash_bytes(uint64_t value, const void *data, size_t size)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < size; i++)
		value = (value ^ bytes[i]) * 0x100000001b3u;
	return value;
}

static uint64_t hash_of(const struct denial *denial)
{
	uint64_t value = hash_bytes(0xcbf29ce484222325u, &denial->reason, sizeof(denial->reason));

	value = hash_bytes(value, &denial->port, sizeof(denial->port));
	value = hash_bytes(value, denial->name, strlen(denial->name));
	if (denial->address)
		value = hash_bytes(value, denial->address, sizeof(*denial->address));
	return value | 1; /* 0 is a free place */
}

/* How often it has happened since it was told; 0: it is not told now. */
static uint32_t count_to_tell(struct denials *denials, uint64_t hash, usec_t now)
{
	struct denial_key *key = NULL;
	uint32_t count;

	for (size_t i = 0; i < DENIAL_KEYS && !key; i++)
		if (denials->key[i].hash == hash)
			key = &denials->key[i];
	if (!key) {
		key = &denials->key[denials->next++ % DENIAL_KEYS];
		*key = (struct denial_key){.hash = hash};
	}
	key->count++;
	if ((key->told_at != 0 && now - key->told_at < REPEAT) ||
	    bucket_fill(&denials->rate, RATE_PER_S, RATE_BURST, now) == 0) {
		denials->untold++;
		return 0;
	}
	denials->rate.left--;
	key->told_at = now;
	count = key->count;
	key->count = 0;
	denials->untold -= count - 1 < denials->untold ? count - 1 : denials->untold;
	return count;
}

static void fill(const struct session *session, const struct denial *denial,
		 struct egress_denial *ret)
{
	const struct policy *policy = session->policy;
	const char *label = denial->label;

	if (!label && policy && denial->rule < policy->n_rules)
		label = policy->rules[denial->rule].label;
	ret->channel = (uint32_t)denial->channel;
	ret->reason = denial->reason;
	ret->rule = denial->rule;
	ret->port = denial->port;
	ret->source_port = denial->source_port;
	ret->at = clock_realtime();
	if (str_copy(ret->name, sizeof(ret->name), denial->name) < 0 ||
	    str_copy(ret->label, sizeof(ret->label), label ? label : "") < 0)
		ret->name[0] = '\0'; /* neither can be too long */
	if (denial->address && denial->name[0] == '\0')
		ret->address = *denial->address;
}

void denials_add(struct session *session, const struct denial *denial)
{
	struct egress_msg msg = {.type = EGRESS_DENIAL};

	session->total.denials++;
	if (session->policy && denial->rule < session->policy->n_rules)
		session->policy->counters[denial->rule].denials++;
	msg.u.denial.count = count_to_tell(&session->denials, hash_of(denial), clock_boottime());
	if (msg.u.denial.count == 0)
		return;
	memcpy(msg.session, session->id.bytes, ID_BYTES);
	fill(session, denial, &msg.u.denial);
	if (!api_link_try(session->egress, &msg))
		session->denials.untold += msg.u.denial.count;
}
