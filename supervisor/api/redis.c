/*
 * Theory. The password of a session is derived from its id and a random key that this host keeps,
 * so that no row holds it and the next worker gives out the same. Redis knows its hash only, and
 * so does everybody on the way there.
 *
 * What the server cannot do now is not waited for: a session is made without Redis. Users that were
 * left, by a server that was away or by a crash, are found by their names and dropped. A server
 * that starts again without a file of users has forgotten all of them: they are made again, as they
 * are missed. Both by one look, a page of users at a time.
 *
 * Keys whose user is lost are found by no name: the row of their session is marked before it is
 * closed, until they are dropped. A drop that failed is tried again, by the next worker too.
 */
#include "supervisor/api/redis.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/log.h"
#include "base/str.h"

#include "supervisor/api/denials.h"
#include "supervisor/api/egress.h"

#define KEY_FILE      REDIS_KEY_NAME
#define MAKE_TIMEOUT  (4 * USEC_PER_SEC)  /* below the time that a policy may take */
#define ADOPT_TIMEOUT (30 * USEC_PER_SEC) /* nobody waits, and there may be many */
#define LOOK_TIMEOUT  (10 * USEC_PER_SEC)
#define DROP_PATIENCE (10 * USEC_PER_SEC) /* of whoever waits; the drop goes on */
/* Longer than a helper has, behind others of them. */
#define DROP_TIMEOUT  (1800 * USEC_PER_SEC)
#define LOOK_EVERY    (20 * USEC_PER_SEC)
#define MEASURE_EVERY (20 * USEC_PER_SEC) /* behind the last answer, or */
#define MEASURE_SHARE 10 /* times what it took: a server of many keys is not kept busy by it */
#define MEASURE_TIME  (60 * USEC_PER_SEC)

#define OWED_MAX       1024
#define OWED_MAX_BYTES (OWED_MAX * sizeof(struct id))

#define PASSWORD_BYTES 32

struct redis_op {
	struct list link; /* REDIS_DROP: app->redis_drops */
	struct app *app;
	struct id session;
	uint32_t tree;         /* REDIS_MAKE */
	bool is_over;          /* the same */
	usec_t asked_at;       /* boottime; REDIS_MEASURE, REDIS_DROP */
	redis_dropped dropped; /* NULL: nobody waits */
	void *userdata;
};

static const char *const status_texts[] = {
	[REDIS_DONE] = "",
	[REDIS_E_CONNECT] = "the server does not answer",
	[REDIS_E_OPEN] = "the server answers clients that give no password",
	[REDIS_E_PASSWORD] = "the server does not take the configured password",
	[REDIS_E_ACL] = "the server has no users, or lets us make none",
	[REDIS_E_SERVER] = "the server answers with an error",
};
_Static_assert(ARRAY_SIZE(status_texts) == REDIS_STATUS_MAX_, "one for each");

static bool is_configured(const struct app *app)
{
	return app->config->redis.port != 0;
}

/* The key. */

static int make_key(struct app *app)
{
	AUTO_CLOSE int fd = -1;
	int r;

	/* One that was not finished may be of an earlier worker's id. */
	(void)unlinkat(WORKER_FD_STATE, KEY_FILE ".new", 0);
	fd = openat(WORKER_FD_STATE, KEY_FILE ".new",
		    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (getrandom(app->redis_key, sizeof(app->redis_key), 0) != sizeof(app->redis_key))
		return -EIO;
	r = io_write_all(fd, app->redis_key, sizeof(app->redis_key));
	if (r >= 0 && fsync(fd) < 0)
		r = -errno;
	if (r >= 0 && renameat(WORKER_FD_STATE, KEY_FILE ".new", WORKER_FD_STATE, KEY_FILE) < 0)
		r = -errno;
	return r;
}

static int take_owed(void *userdata, const struct id *session)
{
	struct app *app = userdata;

	return buf_append(&app->redis_owed, session, sizeof(*session));
}

int redis_start(struct app *app)
{
	AUTO_CLOSE int fd = -1;
	int r;

	app->redis_owed = BUF_NULL(OWED_MAX_BYTES);
	if (!is_configured(app))
		return 0;
	r = store_each_redis_left(app->store, OWED_MAX, take_owed, app);
	if (r < 0)
		return r;
	fd = openat(WORKER_FD_STATE, KEY_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? make_key(app) : -errno;
	return io_read_exact(fd, app->redis_key, sizeof(app->redis_key));
}

static void password_of(const struct app *app, const struct id *session,
			char text[2 * PASSWORD_BYTES + 1])
{
	uint8_t bytes[PASSWORD_BYTES];

	(void)crypto_generichash(bytes, sizeof(bytes), session->bytes, ID_BYTES, app->redis_key,
				 sizeof(app->redis_key));
	(void)sodium_bin2hex(text, 2 * PASSWORD_BYTES + 1, bytes, sizeof(bytes));
	sodium_memzero(bytes, sizeof(bytes));
}

bool redis_access(const struct live *live, struct redis_access *ret_access)
{
	const struct api_config *config = live->app->config;
	char host[POLICY_HOST_BYTES];
	char password[2 * PASSWORD_BYTES + 1];
	char user[REDIS_USER_BYTES];
	char id[ID_TEXT_BYTES];
	int r;

	memset(ret_access, 0, sizeof(*ret_access));
	/* What an earlier worker gave is the same; it leads nowhere where that gave none. */
	if (live->redis == LIVE_REDIS_NONE || (live->redis == LIVE_REDIS_PENDING && !live->adopted))
		return false;
	id_format(&live->session->id, id);
	password_of(live->app, &live->session->id, password);
	policy_redis_host(&config->redis, host);
	/* As the helper forms them. */
	r = str_format(ret_access->prefix, sizeof(ret_access->prefix), "%s:%s:", config->redis_root,
		       id);
	if (r >= 0)
		r = str_format(user, sizeof(user), "%s-%.16s-%s", config->redis_root,
			       live->app->facts.instance, id);
	for (char *at = user; r >= 0 && *at; at++)
		if (*at == ':')
			*at = '-';
	if (r >= 0)
		r = str_format(ret_access->url, sizeof(ret_access->url), "redis://%s:%s@%s:%u/0",
			       user, password, host, config->redis.port);
	sodium_memzero(password, sizeof(password));
	return r >= 0;
}

/* Asking. */

static int ask(struct app *app, const struct id *session, const struct launch_redis *redis,
	       usec_t timeout, supervisor_answer answer, struct redis_op *op)
{
	return supervisor_client_request(app->supervisor,
					 &(struct supervisor_request){.type = LAUNCH_REDIS,
								      .session = session,
								      .redis = redis,
								      .timeout = timeout},
					 answer, op);
}

static enum redis_status status_of(const struct launch_msg *answer)
{
	if (!answer)
		return REDIS_E_CONNECT;
	return answer->error == LAUNCH_E_NONE ? (enum redis_status)answer->u.redis_report.status
					      : REDIS_E_SERVER;
}

static void settle(struct app *app, struct session *session, enum redis_status status)
{
	struct log_context context = {.session = &session->id};
	struct live *live = live_of(session);
	char message[128];

	live->redis = status == REDIS_DONE ? LIVE_REDIS_READY : LIVE_REDIS_NONE;
	if (status != REDIS_DONE) {
		log_line(LOG_LEVEL_WARNING, &context, "session has no Redis", "reason=\"%s\"",
			 status_texts[status]);
		if (str_format(message, sizeof(message), "the session has no Redis: %s",
			       status_texts[status]) >= 0)
			sessions_note(app, session, "redis_unavailable", message);
	}
	egress_push(app, session);
	if (live->restored_waits) {
		live->restored_waits = false;
		sessions_event(app, session, SESSION_EVENT_RESTORED, SESSION_REASON_NONE);
	}
}

static void on_made(void *userdata, const struct launch_msg *answer, int fd)
{
	struct redis_op *op = userdata;
	struct app *app = op->app;
	struct session *session = registry_find(&app->registry, &op->session);
	uint32_t tree = op->tree;

	(void)fd_close(fd);
	free(op);
	if (!session || session->state >= SESSION_STATE_FALLING ||
	    live_of(session)->redis != LIVE_REDIS_PENDING || live_of(session)->tree != tree)
		return;
	settle(app, session, status_of(answer));
}

static int ask_user(struct redis_op *op, usec_t timeout, supervisor_answer answer)
{
	struct launch_redis request = {.action = REDIS_MAKE, .is_over = op->is_over};
	char password[2 * PASSWORD_BYTES + 1];

	password_of(op->app, &op->session, password);
	(void)crypto_hash_sha256(request.password_hash, (const uint8_t *)password,
				 strlen(password));
	sodium_memzero(password, sizeof(password));
	return ask(op->app, &op->session, &request, timeout, answer, op);
}

void redis_begin(struct app *app, struct session *session)
{
	struct live *live = live_of(session);
	struct redis_op *op;

	live->redis = LIVE_REDIS_NONE;
	live->redis_over = false;
	live->restored_waits = false;
	if (!is_configured(app)) {
		egress_push(app, session);
		return;
	}
	op = calloc(1, sizeof(*op));
	if (op) {
		*op = (struct redis_op){.app = app, .session = session->id, .tree = live->tree};
		live->redis = LIVE_REDIS_PENDING;
		live->policy_in_force = false;
		if (ask_user(op, live->adopted ? ADOPT_TIMEOUT : MAKE_TIMEOUT, on_made) >= 0)
			return;
	}
	free(op);
	settle(app, session, REDIS_E_CONNECT);
}

/* Tried again by this worker, or else by the next. */
static void owe(struct app *app, const struct id *session)
{
	struct log_context context = {.session = session};

	if (buf_append(&app->redis_owed, session, sizeof(*session)) < 0)
		log_line(LOG_LEVEL_ERROR, &context, "they stay there until the next start", NULL);
}

/* Without memory the mark stays, and the next worker does again what was done. */
static void mark(struct app *app, const struct id *session, bool left)
{
	IGNORE_RESULT(store_session_redis(app->store, session, left));
}

static void on_dropped(void *userdata, const struct launch_msg *answer, int fd)
{
	struct redis_op *op = userdata;
	struct log_context context = {.session = &op->session};
	enum redis_status status = status_of(answer);
	uint32_t n_keys =
		answer && answer->error == LAUNCH_E_NONE ? answer->u.redis_report.n_keys : 0;

	(void)fd_close(fd);
	list_remove(&op->link);
	if (status != REDIS_DONE) {
		log_line(LOG_LEVEL_WARNING, &context, "keys of the session are left in Redis",
			 "reason=\"%s\"", status_texts[status]);
		owe(op->app, &op->session);
	} else {
		mark(op->app, &op->session, false);
	}
	if (op->dropped)
		op->dropped(op->userdata, n_keys);
	free(op);
}

static bool is_being_dropped(const struct app *app, const struct id *session)
{
	LIST_FOR_EACH (link, &app->redis_drops) {
		if (id_equal(&LIST_ENTRY(link, struct redis_op, link)->session, session))
			return true;
	}
	return false;
}

/* NULL: no memory, and it is for later. */
static struct redis_op *drop_new(struct app *app, const struct id *session, redis_dropped dropped,
				 void *userdata)
{
	struct redis_op *op = calloc(1, sizeof(*op));

	if (!op) {
		owe(app, session);
		return NULL;
	}
	*op = (struct redis_op){
		.app = app,
		.session = *session,
		.asked_at = clock_boottime(),
		.dropped = dropped,
		.userdata = userdata,
	};
	list_append(&app->redis_drops, &op->link);
	return op;
}

static void drop_later(struct redis_op *op)
{
	owe(op->app, &op->session);
	list_remove(&op->link);
	free(op);
}

/* action: REDIS_DROP or REDIS_LEAVE. False: it is for later. */
static bool drop(struct redis_op *op, enum redis_action action)
{
	const struct launch_redis request = {.action = action};

	if (!op)
		return false;
	if (ask(op->app, &op->session, &request, DROP_TIMEOUT, on_dropped, op) >= 0)
		return true;
	drop_later(op);
	return false;
}

/* Whose the session is by now, and so its keys. */
static void on_holder(void *userdata, enum store_result result)
{
	struct redis_op *op = userdata;

	if (result == STORE_DEGRADED)
		return; /* it will be known */
	if (result == STORE_OK || result == STORE_FENCED)
		(void)drop(op, result == STORE_OK ? REDIS_DROP : REDIS_LEAVE);
	else
		drop_later(op);
}

/* One that is not in memory, or that another host may have taken. Its first drop may still be at
 * work. */
static void drop_rest(struct app *app, const struct id *session)
{
	struct redis_op *op =
		is_being_dropped(app, session) ? NULL : drop_new(app, session, NULL, NULL);

	if (op && store_session_check(app->store, session, on_holder, op) < 0)
		drop_later(op);
}

/* Many keys take their time; who waits for a session's end is not kept by them. */
static void tell_impatient(struct app *app, usec_t now)
{
	LIST_FOR_EACH (link, &app->redis_drops) {
		struct redis_op *op = LIST_ENTRY(link, struct redis_op, link);
		redis_dropped dropped = op->dropped;

		if (!dropped || now - op->asked_at < DROP_PATIENCE)
			continue;
		op->dropped = NULL;
		dropped(op->userdata, 0);
	}
}

bool redis_drop(struct app *app, const struct id *session, redis_dropped dropped, void *userdata)
{
	if (!is_configured(app))
		return false;
	mark(app, session, true);
	if (store_lease_lapsed(app->store, clock_boottime())) {
		drop_rest(app, session);
		return false;
	}
	return drop(drop_new(app, session, dropped, userdata), REDIS_DROP);
}

void redis_leave(struct app *app, const struct id *session)
{
	if (is_configured(app))
		(void)drop(drop_new(app, session, NULL, NULL), REDIS_LEAVE);
}

/* Users that are made again: the server forgot them, or their session came over its bound, or under
 * it. */

static void note_bound(struct app *app, struct session *session, bool is_over)
{
	if (!is_over) {
		sessions_note(app, session, "redis_writable",
			      "the session may write to Redis again");
		return;
	}
	denials_note(app, session,
		     &(struct denial_report){
			     .kind = DENIAL_DISK,
			     .count = 1,
			     .what = "writing to Redis",
			     .rule = "session_keys and session_bytes of section redis",
			     .source = "Redis",
			     .advice = "delete keys, or let them expire; the operator may raise it",
		     });
}

static void on_made_again(void *userdata, const struct launch_msg *answer, int fd)
{
	struct redis_op *op = userdata;
	struct log_context context = {.session = &op->session};
	struct session *session = registry_find(&op->app->registry, &op->session);
	struct live *live = session ? live_of(session) : NULL;
	enum redis_status status = status_of(answer);

	(void)fd_close(fd);
	if (status != REDIS_DONE)
		log_line(LOG_LEVEL_WARNING, &context,
			 "the session's user in Redis is not made again", "reason=\"%s\"",
			 status_texts[status]);
	else if (live && live->redis == LIVE_REDIS_READY && live->redis_over != op->is_over) {
		live->redis_over = op->is_over;
		note_bound(op->app, session, op->is_over);
	}
	free(op);
}

static void make_again(struct app *app, const struct session *session, bool is_over)
{
	struct redis_op *op = calloc(1, sizeof(*op));

	if (!op)
		return; /* the next look */
	*op = (struct redis_op){.app = app, .session = session->id, .is_over = is_over};
	if (ask_user(op, LOOK_TIMEOUT, on_made_again) < 0)
		free(op);
}

static bool is_ready(const struct session *session)
{
	return session->state < SESSION_STATE_FALLING && live_of(session) &&
	       live_of(session)->redis == LIVE_REDIS_READY;
}

/* The report's are rising. */
static bool is_named(const struct redis_report *report, const struct id *id)
{
	for (uint32_t i = 0; i < report->n_sessions; i++) {
		if (memcmp(report->session[i], id->bytes, ID_BYTES) == 0)
			return true;
	}
	return false;
}

/* Whether it is named says something of it: the report names the smallest ones. */
static bool is_covered(const struct redis_report *report, const struct id *id)
{
	return report->n_sessions < REDIS_LIST_MAX ||
	       memcmp(id->bytes, report->session[REDIS_LIST_MAX - 1], ID_BYTES) <= 0;
}

/* One page of users: those that nobody has any more go, those that are missing are made. True:
 * there are more of either. */
static bool take_page(struct app *app, const struct redis_report *report)
{
	bool is_last = report->n_sessions < REDIS_LIST_MAX;
	struct id to = {{0}};
	uint32_t n_ready = 0;

	if (report->n_sessions > 0)
		memcpy(to.bytes, report->session[report->n_sessions - 1], ID_BYTES);
	for (uint32_t i = 0; i < report->n_sessions; i++) {
		struct id id;

		memcpy(id.bytes, report->session[i], ID_BYTES);
		if (!registry_find(&app->registry, &id))
			drop_rest(app, &id);
	}
	LIST_FOR_EACH (link, &app->registry.by_age) {
		const struct session *session = LIST_ENTRY(link, struct session, by_age);

		if (!is_ready(session))
			continue;
		n_ready++;
		if (memcmp(session->id.bytes, app->redis_after.bytes, ID_BYTES) > 0 &&
		    (is_last || memcmp(session->id.bytes, to.bytes, ID_BYTES) < 0) &&
		    !is_named(report, &session->id))
			make_again(app, session, live_of(session)->redis_over);
	}
	app->redis_after = to;
	if (is_last)
		memset(&app->redis_after, 0, sizeof(app->redis_after));
	return !is_last || report->n_users < n_ready;
}

static void drop_owed(struct app *app)
{
	struct buf owed = app->redis_owed;

	app->redis_owed = BUF_NULL(OWED_MAX_BYTES);
	for (size_t at = 0; at < owed.size; at += sizeof(struct id)) {
		struct id id;

		memcpy(&id, owed.data + at, sizeof(id));
		drop_rest(app, &id);
	}
	buf_done(&owed);
}

static void on_listed(void *userdata, const struct launch_msg *answer, int fd)
{
	struct redis_op *op = userdata;
	struct app *app = op->app;

	(void)fd_close(fd);
	free(op);
	if (status_of(answer) != REDIS_DONE)
		return;
	if (take_page(app, &answer->u.redis_report))
		app->redis_look_at = 0;
	drop_owed(app);
}

static void on_measured(void *userdata, const struct launch_msg *answer, int fd)
{
	struct redis_op *op = userdata;
	struct app *app = op->app;
	enum redis_status status = status_of(answer);
	usec_t now = clock_boottime();
	usec_t pause = MEASURE_SHARE * (now - op->asked_at);

	(void)fd_close(fd);
	free(op);
	app->redis_measure_at = clock_add(now, pause > MEASURE_EVERY ? pause : MEASURE_EVERY);
	if (status != REDIS_DONE && !app->redis_unmeasured)
		log_line(LOG_LEVEL_WARNING, NULL, "keys of sessions in Redis are not measured",
			 "reason=\"%s\"", status_texts[status]);
	app->redis_unmeasured = status != REDIS_DONE;
	if (status != REDIS_DONE)
		return;
	LIST_FOR_EACH (link, &app->registry.by_age) {
		const struct session *session = LIST_ENTRY(link, struct session, by_age);
		bool is_over = is_named(&answer->u.redis_report, &session->id);

		if (is_ready(session) && is_covered(&answer->u.redis_report, &session->id) &&
		    live_of(session)->redis_over != is_over)
			make_again(app, session, is_over);
	}
}

static void look(struct app *app, enum redis_action action, usec_t timeout,
		 supervisor_answer answer)
{
	const struct launch_redis request = {.action = action};
	struct redis_op *op = calloc(1, sizeof(*op));
	struct id id = app->redis_after;

	if (!op)
		return;
	/* Of no session, and below all of them: what is asked of one id is done in turn. */
	if (action != REDIS_LIST || id_is_null(&id)) {
		id = (struct id){{0}};
		id.bytes[ID_BYTES - 1] = (uint8_t)action;
	}
	op->app = app;
	op->asked_at = clock_boottime();
	if (ask(app, &id, &request, timeout, answer, op) < 0)
		free(op);
}

void redis_tick(struct app *app)
{
	usec_t now = clock_boottime();

	tell_impatient(app, now);
	if (!is_configured(app) || app->phase != APP_PHASE_SERVING)
		return;
	if (now >= app->redis_look_at) {
		app->redis_look_at = clock_add(now, LOOK_EVERY);
		look(app, REDIS_LIST, LOOK_TIMEOUT, on_listed);
	}
	if (now >= app->redis_measure_at &&
	    (app->config->redis_max_keys != 0 || app->config->redis_max_bytes != 0)) {
		/* The answer sets the next one. */
		app->redis_measure_at = clock_add(now, 2 * MEASURE_TIME);
		look(app, REDIS_MEASURE, MEASURE_TIME, on_measured);
	}
}
