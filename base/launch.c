#include "base/launch.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/err.h"
#include "base/id.h"
#include "base/secret.h"
#include "base/str.h"
#include "base/template_name.h"

struct request_rule {
	enum launch_type type;
	bool names_session; /* else the session field is null */
};

static const struct request_rule requests[] = {
	{LAUNCH_HELLO,     false},
        {LAUNCH_START,     true },
        {LAUNCH_KILL,      true },
	{LAUNCH_FREEZE,    true },
        {LAUNCH_THAW,      true },
        {LAUNCH_STAT,      true },
	{LAUNCH_ADOPT,     false},
        {LAUNCH_PROOF,     true },
        {LAUNCH_TRACE,     true },
	{LAUNCH_LOG_LEVEL, false},
        {LAUNCH_REDIS,     true },
        {LAUNCH_LINK,      false},
	{LAUNCH_SERVICE,   false},
        {LAUNCH_LEASE,     false},
        {LAUNCH_PART,      true },
	{LAUNCH_JOIN,      true },
        {LAUNCH_S3,        false},
};
_Static_assert(ARRAY_SIZE(requests) == LAUNCH_S3 / 2, "one rule per request");
#define IS_EVEN(type) ((type) % 2 == 0)
_Static_assert(IS_EVEN(LAUNCH_HELLO) && IS_EVEN(LAUNCH_START) && IS_EVEN(LAUNCH_KILL) &&
		       IS_EVEN(LAUNCH_FREEZE) && IS_EVEN(LAUNCH_THAW) && IS_EVEN(LAUNCH_STAT) &&
		       IS_EVEN(LAUNCH_REDIS) && IS_EVEN(LAUNCH_ADOPT) && IS_EVEN(LAUNCH_PROOF) &&
		       IS_EVEN(LAUNCH_TRACE) && IS_EVEN(LAUNCH_LOG_LEVEL) && IS_EVEN(LAUNCH_LINK) &&
		       IS_EVEN(LAUNCH_SERVICE) && IS_EVEN(LAUNCH_LEASE) && IS_EVEN(LAUNCH_PART) &&
		       IS_EVEN(LAUNCH_JOIN) && IS_EVEN(LAUNCH_S3) && !IS_EVEN(LAUNCH_EVENT_GONE) &&
		       !IS_EVEN(LAUNCH_EVENT_FACTS) && !IS_EVEN(LAUNCH_EVENT_CONFIG) &&
		       !IS_EVEN(LAUNCH_EVENT_LINK) && !IS_EVEN(LAUNCH_EVENT_NET) &&
		       !IS_EVEN(LAUNCH_EVENT_NET_GONE),
	       "requests are even, answers and events are odd");

static const struct request_rule *find_request(unsigned int type)
{
	for (size_t i = 0; i < ARRAY_SIZE(requests); i++)
		if (requests[i].type == type)
			return &requests[i];
	return NULL;
}

static bool session_is_null(const struct launch_msg *msg)
{
	struct id session;

	memcpy(session.bytes, msg->session, ID_BYTES);
	return id_is_null(&session);
}

static bool hello_valid(const struct launch_hello *hello)
{
	return hello->magic == LAUNCH_MAGIC && hello->version == LAUNCH_VERSION &&
	       hello->message_bytes == sizeof(struct launch_msg);
}

static bool request_id_valid(const char text[LAUNCH_REQUEST_BYTES])
{
	const char *end = memchr(text, '\0', LAUNCH_REQUEST_BYTES);

	return end && str_only(text, (size_t)(end - text), "._-");
}

static bool template_valid(const char text[TEMPLATE_NAME_BYTES])
{
	size_t length = strnlen(text, TEMPLATE_NAME_BYTES);

	for (size_t i = length; i < TEMPLATE_NAME_BYTES; i++) {
		if (text[i] != '\0')
			return false;
	}
	return length == 0 || (template_name_is_valid(text) && !str_equal(text, TEMPLATE_BASE));
}

static bool start_valid(const struct launch_msg *msg)
{
	return secret_request_check(&msg->u.start.secrets) == 0 &&
	       request_id_valid(msg->u.start.request) && template_valid(msg->u.start.template);
}

static int request_check(const struct launch_msg *msg)
{
	const struct request_rule *rule = find_request(msg->type);

	if (!rule || msg->error != 0 || msg->more != 0)
		return -EPROTO;
	if (session_is_null(msg) == rule->names_session)
		return -EPROTO;
	if (rule->type == LAUNCH_HELLO && !hello_valid(&msg->u.hello))
		return -EPROTO;
	if (rule->type == LAUNCH_START && !start_valid(msg))
		return -EPROTO;
	if (rule->type == LAUNCH_LINK && msg->u.link.egress > PLAN_EGRESS_MAX)
		return -EPROTO;
	if (rule->type == LAUNCH_REDIS &&
	    (msg->u.redis.action == 0 || msg->u.redis.action >= REDIS_ACTION_MAX_))
		return -EPROTO;
	/* One message never names two sessions. */
	if (rule->type == LAUNCH_START && memcmp(msg->session, msg->u.plan.session, ID_BYTES) != 0)
		return -EPROTO;
	return 0;
}

static bool config_valid(const struct launch_config *config)
{
	return config->refused <= 1 && memchr(config->text, '\0', sizeof(config->text)) &&
	       memchr(config->waiting, '\0', sizeof(config->waiting));
}

static int event_check(const struct launch_msg *msg)
{
	if (msg->error != 0 || msg->more != 0)
		return -EPROTO;
	switch (msg->type) {
	case LAUNCH_EVENT_GONE:
	case LAUNCH_EVENT_NET:
	case LAUNCH_EVENT_NET_GONE:
		return session_is_null(msg) ? -EPROTO : 0;
	case LAUNCH_EVENT_FACTS:
		return session_is_null(msg) ? 0 : -EPROTO;
	case LAUNCH_EVENT_CONFIG:
		return session_is_null(msg) && config_valid(&msg->u.config) ? 0 : -EPROTO;
	case LAUNCH_EVENT_LINK:
		return session_is_null(msg) && (msg->u.link.egress <= PLAN_EGRESS_MAX ||
						msg->u.link.egress == LAUNCH_LINK_PROVIDER)
			       ? 0
			       : -EPROTO;
	default:
		return -EPROTO;
	}
}

static bool report_valid(const struct redis_report *report)
{
	return report->status < REDIS_STATUS_MAX_ && report->n_sessions <= REDIS_LIST_MAX;
}

static int answer_check(const struct launch_msg *msg)
{
	const struct request_rule *rule;

	if (msg->error >= LAUNCH_E_MAX_ || msg->more > 1)
		return -EPROTO;
	if (msg->type >= LAUNCH_EVENT_GONE)
		return event_check(msg);
	rule = find_request(msg->type - 1u);
	if (!rule)
		return -EPROTO;
	if (rule->type == LAUNCH_HELLO && msg->error == 0 && !hello_valid(&msg->u.hello))
		return -EPROTO;
	if (rule->type == LAUNCH_REDIS && msg->error == 0 && !report_valid(&msg->u.redis_report))
		return -EPROTO;
	if (msg->more && (rule->type != LAUNCH_ADOPT || session_is_null(msg)))
		return -EPROTO;
	return 0;
}

int launch_check(const struct launch_msg *msg, size_t size, int is_answer)
{
	if (size != sizeof(*msg) || msg->magic != LAUNCH_MAGIC || msg->version != LAUNCH_VERSION ||
	    msg->zero != 0)
		return -EPROTO;
	return is_answer ? answer_check(msg) : request_check(msg);
}

struct launch_msg launch_message(enum launch_type type, uint32_t serial,
				 const uint8_t session[ID_BYTES])
{
	struct launch_msg msg;

	memset(&msg, 0, sizeof(msg)); /* all of the union: no byte of the stack goes out */
	msg.magic = LAUNCH_MAGIC;
	msg.version = LAUNCH_VERSION;
	msg.type = (uint16_t)type;
	msg.serial = serial;
	if (session)
		memcpy(msg.session, session, ID_BYTES);
	if ((msg.type & ~1u) == LAUNCH_HELLO) {
		msg.u.hello.magic = LAUNCH_MAGIC;
		msg.u.hello.version = LAUNCH_VERSION;
		msg.u.hello.message_bytes = sizeof(msg);
	}
	return msg;
}

static const char *const error_texts[] = {
	[LAUNCH_E_NONE] = "no error",
	[LAUNCH_E_STEP] = "a launch step failed",
	[LAUNCH_E_NOT_FOUND] = "the session does not exist",
	[LAUNCH_E_EXISTS] = "the session id is in use",
	[LAUNCH_E_PLAN] = "the plan is outside its ranges",
	[LAUNCH_E_SESSIONS] = "the limit of sessions is reached",
	[LAUNCH_E_MEMORY] = "the limit of memory over all sessions is reached",
	[LAUNCH_E_PIDS] = "the limit of processes over all sessions is reached",
	[LAUNCH_E_RATE] = "too many launches in this second",
	[LAUNCH_E_IDS] = "no block of user ids is free",
	[LAUNCH_E_DESCRIPTORS] = "the limit of open descriptors is reached",
	[LAUNCH_E_STATE] = "the session is not in a state that permits this",
	[LAUNCH_E_STOPPING] = "the service is stopping",
	[LAUNCH_E_SECRET] = "a secret is not available",
	[LAUNCH_E_TEMPLATE] = "the template is not there",
	[LAUNCH_E_INCOMPATIBLE] = "made by a release that this one does not understand",
	[LAUNCH_E_PROOF] = "the isolation in force differs from the plan",
	[LAUNCH_E_UNSUPPORTED] = "the sandbox's provider cannot do this",
};
_Static_assert(ARRAY_SIZE(error_texts) == LAUNCH_E_MAX_, "one text per error");

const char *launch_error_text(uint32_t error)
{
	return error < ARRAY_SIZE(error_texts) ? error_texts[error] : "unknown error";
}
