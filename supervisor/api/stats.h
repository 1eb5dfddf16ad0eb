/*
 * What a session uses (action_stats).
 */
#pragma once

struct launch_stat;
struct request;
struct session;

/* Answers with what the supervisor has counted, and how full the session's folders are: null where
 * that cannot be known now. session: NULL where it is gone by now. */
void stats_reply(struct request *request, struct session *session, const char *session_id,
		 const struct launch_stat *stat);
