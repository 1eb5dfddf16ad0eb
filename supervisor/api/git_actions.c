/*
 * Theory. An act is a few commands of git, one after the other, each a command of the session like
 * any other (command.h): it is listed while it runs, its output is bounded, and it ends when the
 * client leaves. The next one begins in a turn of its own, never from inside of what the link says.
 *
 * The credential goes to the standard input of the network step, a sealed program that nothing in
 * the session can look into (jail/git/main.c); it is wiped here when it was sent, and no answer,
 * log or audit line has it. What the remote's URL is the session says: with a credential its host
 * must be the one that the caller named, else nothing is sent.
 */
#include <errno.h>
#include <string.h>

#include "base/egress_rule.h"
#include "base/endpoint_value.h"
#include "base/str.h"

#include "supervisor/api/command_actions.h"
#include "supervisor/api/components.h"
#include "supervisor/api/egress.h"
#include "supervisor/api/git/parse.h"
#include "supervisor/api/git_reply.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/loader_run.h"

#define SAID_MAX_BYTES ((size_t)8 * 1024 * 1024)
#define TOUCHED        "a root command may have changed the programs"

struct git_run {
	struct command_reader reader; /* of the step's command */
	struct app *app;
	struct share *share;
	struct answer_to to;
	struct id session;
	struct spec_git spec;
	const enum git_step *step;
	char *url; /* where the network step goes */
	struct git_said said;
	sd_event_source *turn;
};

static void run_free(struct git_run *run)
{
	command_read_end(&run->reader);
	run->turn = sd_event_source_disable_unref(run->turn);
	command_output_done(&run->said.output);
	run->share = share_put(run->share);
	json_decref(run->said.counts);
	spec_git_done(&run->spec);
	free(run->url);
	free(run);
}

static void on_wake(struct command_reader *reader)
{
	struct git_run *run = LIST_ENTRY(reader, struct git_run, reader);

	command_output_take(&run->said.output, reader);
	if (command_read_all(reader))
		(void)sd_event_source_set_enabled(run->turn, SD_EVENT_ONESHOT);
}

/* The request of the credential, for the standard input of sandbox-git. */
static int make_request(const struct git_run *run, struct spec_command *command)
{
	const struct spec_git *spec = &run->spec;
	char ref[GIT_REF_MAX_BYTES + 16] = "";
	const char *texts[] = {run->url, spec->username, spec->password, ref, spec->ca};
	size_t length[ARRAY_SIZE(texts)];
	struct git_request head = {.magic = GIT_REQUEST_MAGIC, .service = GIT_SERVICE_FETCH};
	size_t size = sizeof(head);
	char *at;

	if (spec->act == GIT_ACT_PUSH) {
		head.service = GIT_SERVICE_PUSH;
		if (str_format(ref, sizeof(ref), "refs/heads/%s", spec->branch) < 0)
			return -E2BIG;
	}
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		length[i] = texts[i] ? strlen(texts[i]) : 0;
		size += length[i];
	}
	head.url_bytes = (uint32_t)length[0];
	head.username_bytes = (uint32_t)length[1];
	head.password_bytes = (uint32_t)length[2];
	head.ref_bytes = (uint32_t)length[3];
	head.ca_bytes = (uint32_t)length[4];
	command->stdin_text = malloc(size);
	if (!command->stdin_text)
		return -ENOMEM;
	command->stdin_length = size;
	command->has_credential = spec->password != NULL;
	at = command->stdin_text;
	memcpy(at, &head, sizeof(head));
	at += sizeof(head);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		if (length[i] > 0)
			memcpy(at, texts[i], length[i]);
		at += length[i];
	}
	return 0;
}

static int begin_command(struct git_run *run, struct live *live, struct spec_command *spec)
{
	struct environment environment = ENVIRONMENT_NULL;
	struct command *command;
	int r;

	r = session_environment(live, spec->env, false, &environment);
	if (r >= 0)
		r = command_begin(live, spec, &environment, clock_boottime(), &command);
	environment_done(&environment);
	if (r >= 0)
		command_read(command, &run->reader, 0, true);
	return r;
}

/* sandbox-git is read with the libraries of the session's root, which may be a template's. Begun
 * with a credential, it holds root commands back (command_begin). */
static bool may_tell_credential(const struct live *live, const struct spec_git *spec)
{
	return !spec->password || live->session->spec.runtime.template[0] == '\0' || !live->shim ||
	       shim_link_is_untouched(live->shim);
}

/* The command of the step that is next. 0 or -errno. */
static int begin_step(struct git_run *run, struct live *live)
{
	struct spec_command command;
	int r;

	command_output_done(&run->said.output);
	command_output_init(&run->said.output, run->app, run->share, SAID_MAX_BYTES);
	r = git_words(&run->spec, *run->step, run->url, &command);
	if (r >= 0 && *run->step == GIT_STEP_NETWORK)
		r = make_request(run, &command);
	if (r >= 0)
		r = begin_command(run, live, &command);
	if (command.stdin_text)
		explicit_bzero(command.stdin_text, command.stdin_length);
	spec_command_done(&command);
	return r;
}

/* The remote's URL is known. NULL, or why it is not used. */
static const char *take_remote(struct git_run *run, enum runtime_error *ret_error)
{
	char host[GIT_URL_MAX_BYTES + 1];
	bool is_tls;
	int r;

	*ret_error = RUNTIME_GIT_NOT_FOUND;
	r = git_remote_url(&run->said.output.text[0], run->spec.act == GIT_ACT_PUSH, &run->url);
	if (r == -E2BIG)
		return "the remote has several URLs: name one";
	if (r < 0)
		return "the remote has no URL";
	*ret_error = RUNTIME_DENIED;
	if (git_url_check(run->url, strlen(run->url), host, &is_tls))
		return "the remote's URL is neither http:// nor https://, or has a user in it";
	if (!run->spec.password)
		return NULL;
	if (!is_tls)
		return "the remote's URL is http://: credentials are for https only";
	return str_equal(host, run->spec.host) ? NULL
					       : "the remote's URL is of another host than the "
						 "credentials";
}

static void answer_error(struct git_run *run, enum runtime_error error, const char *detail)
{
	struct request *request = answer_get(&run->to);

	if (request)
		reply_runtime_error(request, error, detail);
	run_free(run);
}

static void answer_lost(struct git_run *run, const struct session *session, int error)
{
	struct request *request = answer_get(&run->to);

	if (request && session)
		reply_link_error(request, session, error);
	else if (request)
		reply_not_found(request);
	run_free(run);
}

/* What the session may dial is known here; inside, a name without a rule has no address. */
static bool has_rule(struct app *app, const struct session *session, const char *url)
{
	const struct net_policy *policy = egress_policy_kept(app, session);
	struct egress_address address = {0};
	struct endpoint_value value;
	const struct endpoint_target *target = &value.target[0];
	uint32_t reason;
	uint32_t rule;

	if (!policy || endpoint_value_read(ENDPOINT_FORM_URL, url, strlen(url), &value) ||
	    value.n_targets != 1)
		return true;
	if (target->kind != ENDPOINT_HOST_NAME &&
	    egress_address_parse(target->host, strlen(target->host), &address) < 0)
		return true;
	rule = egress_rule_match(policy->rule, policy->n_rules,
				 target->kind == ENDPOINT_HOST_NAME ? target->host : "", &address,
				 target->port, &reason);
	return rule != EGRESS_NO_RULE && (!(policy->rule[rule].flags & EGRESS_PRODUCTION) ||
					  egress_rule_reroutes(&policy->rule[rule]));
}

/* A repository without a commit has a log without one. */
static bool is_empty_log(struct git_run *run)
{
	const char *text = run->spec.act == GIT_ACT_LOG && !run->spec.ref
				   ? buf_text(&run->said.output.text[1])
				   : NULL;

	return text && strstr(text, "does not have any commits yet");
}

/* How the command ended is in run->said.end. True: the act goes on. */
static bool judge_step(struct git_run *run, const struct session *session)
{
	struct request *request = answer_get(&run->to);
	enum runtime_error error;
	const char *problem;

	if (run->said.end.code != 0 && !is_empty_log(run)) {
		run->said.no_rule = *run->step == GIT_STEP_NETWORK &&
				    run->said.end.code == GIT_EXIT_CONNECT &&
				    !has_rule(run->app, session, run->url);
		if (request)
			reply_git_failed(request, *run->step, &run->said);
		run_free(run);
		return false;
	}
	if (*run->step == GIT_STEP_REMOTE) {
		problem = take_remote(run, &error);
		if (problem) {
			answer_error(run, error, problem);
			return false;
		}
	}
	if (*run->step == GIT_STEP_COUNTS)
		run->said.counts = git_counts_json(&run->said.output.text[0]);
	run->step++;
	/* A step before may have taken its time. */
	if (*run->step == GIT_STEP_NETWORK && !may_tell_credential(live_of(session), &run->spec)) {
		answer_error(run, RUNTIME_DENIED, TOUCHED);
		return false;
	}
	if (*run->step != GIT_STEP_END)
		return true;
	if (request)
		reply_git(request, &run->spec, &run->said);
	run_free(run);
	return false;
}

/* How the command ended. 0; -EPIPE: with its session; -ENOENT: there is no such folder; -ENOEXEC:
 * it did not start. */
static int take_end(struct git_run *run)
{
	const struct command_event *end = command_end_event(run->reader.command);
	struct wire_failed failed;

	if (!end || end->kind == COMMAND_EVENT_LOST)
		return -EPIPE;
	if (end->kind == COMMAND_EVENT_FAILED) {
		memcpy(&failed, end->data, sizeof(failed));
		return failed.step == WIRE_STEP_CWD ? -ENOENT : -ENOEXEC;
	}
	memcpy(&run->said.end, end->data, sizeof(run->said.end));
	return 0;
}

static int on_turn(sd_event_source *source, void *userdata)
{
	struct git_run *run = userdata;
	struct session *session = registry_find(&run->app->registry, &run->session);
	struct live *live = session ? live_of(session) : NULL;
	int r = take_end(run);

	(void)source;
	command_read_end(&run->reader);
	if (run->said.output.broken) {
		answer_error(run, RUNTIME_BUSY, run->said.output.broken);
	} else if (r == -ENOENT) {
		answer_error(run, RUNTIME_NO_FILE, NULL);
	} else if (r == -ENOEXEC) {
		answer_error(run, RUNTIME_COMMAND_FAILED, "the sandbox has no git");
	} else if (r < 0 || !live) {
		answer_lost(run, session, -EPIPE);
	} else if (judge_step(run, session)) {
		r = begin_step(run, live);
		if (r < 0)
			answer_lost(run, session, r);
	}
	return 0;
}

static void on_left(void *userdata)
{
	run_free(userdata);
}

static struct git_run *run_new(struct request *request, const struct session *session)
{
	struct git_run *run = calloc(1, sizeof(*run));

	if (!run)
		return NULL;
	run->app = request_app(request);
	run->share = share_ref(request->share);
	command_output_init(&run->said.output, run->app, run->share, SAID_MAX_BYTES);
	run->to = answer_to(request);
	run->session = session->id;
	run->reader.wake = on_wake;
	if (sd_event_add_defer(run->app->event, &run->turn, on_turn, run) < 0 ||
	    sd_event_source_set_enabled(run->turn, SD_EVENT_OFF) < 0) {
		run_free(run);
		return NULL;
	}
	return run;
}

static void note(struct request *request, const struct spec_git *spec)
{
	if (spec->host)
		request_note(request, "host", json_string(spec->host));
	if (spec->password)
		request_note(request, "credentials", json_true());
}

void action_git(struct request *request, struct session *session, struct spec_git *spec)
{
	struct live *live = live_of(session);
	bool is_network = spec->act <= GIT_ACT_PUSH;
	struct git_run *run;
	int r;

	note(request, spec);
	if (!command_may_work(request, session))
		return;
	if (is_network && live->shim && !shim_link_has(live->shim, WIRE_FEATURE_GIT)) {
		reply_runtime_error(request, RUNTIME_OLDER_TREE, NULL);
		return;
	}
	if (!may_tell_credential(live, spec)) {
		reply_runtime_error(request, RUNTIME_DENIED, TOUCHED);
		return;
	}
	run = run_new(request, session);
	if (!run) {
		reply_runtime_error(request, RUNTIME_BUSY, "out of memory");
		return;
	}
	run->spec = *spec;
	*spec = SPEC_GIT_NULL;
	run->said.is_anonymous = !run->spec.password;
	run->step = git_steps(&run->spec);
	run->url = run->spec.url ? strdup(run->spec.url) : NULL;
	r = run->spec.url && !run->url ? -ENOMEM : begin_step(run, live);
	if (r < 0)
		answer_lost(run, session, r);
	else
		request_on_left(request, on_left, run);
}
