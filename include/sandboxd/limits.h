/*
 * Every bound that two programs share, in one place, with its unit in its name.
 *
 * A bound belongs here when a message, a row or an answer carries the value it limits. Bounds that
 * one module keeps for itself stay in that module.
 */
#pragma once

/* Ids: 128 random bits, shown as UUID version 4 text. */
#define ID_BYTES      16
#define ID_TEXT_BYTES 37 /* 36 characters and the NUL */

/* Frames between the api worker and a shim (wire.h). */
#define WIRE_FRAME_MAX_BYTES   65536
#define WIRE_PAYLOAD_MAX_BYTES (WIRE_FRAME_MAX_BYTES - 24)
#define SHIM_RING_BYTES        (1024 * 1024) /* unacknowledged frames of one running job */
#define SHIM_MAX_JOBS          16 /* commands and file operations at once in one session */
#define SHIM_N_SLOTS           56 /* with those that ended: not acknowledged yet, or kept */
#define SESSION_OUTPUT_RATES   2  /* all output of a session, as a multiple of one command's rate */
#define SHIM_MAX_KEPT          16 /* kept commands of a session that have ended */
#define WIRE_NOTE_MAX_BYTES    512
#define WIRE_FILE_WINDOW_BYTES ((size_t)256 * 1024) /* on the way, of one file operation */
#define FILE_PATH_BYTES        4096                 /* NUL included */
#define FILE_LIST_MAX          10000
#define FILE_WATCHES_MAX       4 /* of a session at once: each is a job, and a process */
#define FILE_WATCH_MAX_FOLDERS 8192

/* One command. */
#define EXEC_MAX_ARGV        1024
#define EXEC_MAX_ENV         256
#define EXEC_CWD_BYTES       4096          /* NUL included */
#define EXEC_STDIN_MAX_BYTES (1024 * 1024) /* given with the request, held until it is read */

/* Components (DESIGN defaults; the configuration may lower them). */
#define COMPONENT_STEM_MAX       128
#define COMPONENT_NAME_BYTES     (COMPONENT_STEM_MAX + 5 + 1) /* ".yaml" and the NUL */
#define COMPONENT_BODY_MAX_BYTES (1024 * 1024)
#define COMPONENTS_MAX           200
#define COMPONENTS_MAX_BYTES     (32 * 1024 * 1024)

/* Sessions. */
#define TTL_MIN_MINUTES          1
#define TTL_MAX_MINUTES          720
#define TTL_DEFAULT_MINUTES      60
#define AGENT_TTL_MAX_MINUTES    (7 * 24 * 60)
#define ENDPOINTS_N              6
#define ENDPOINT_VALUE_MAX_BYTES 2048
#define SESSION_QUEUE_MAX_JOBS   32

/*
 * Descriptors of the supervisor that are not a session's (measured: about 55, and the workers' and
 * the reserve's), and those that one session costs it: as long as it lives its pidfd, the link and
 * two sockets of its network; about a dozen for the millisecond of its launch. A launch that finds
 * none fails with its step and leaves nothing. So many sessions there are at most, and an egress
 * worker, whose limit is the same, keeps room for the sockets of all of them.
 */
#define FILES_OF_SUPERVISOR 256u
#define FILES_OF_SESSION    6u

/* Identity headers. */
#define IDENTITY_MAX        36
#define IDENTITY_SCOPES_MAX 1024

/* Frames of a task. */
#define TASK_FRAMES_MAX       20000
#define TASK_FRAMES_MAX_BYTES (32 * 1024 * 1024)

/* Ids of one session: a block of 65 536 host ids, all but the last of them mapped. */
#define IDBLOCK_SIZE    65536
#define IDBLOCK_MAPPED  65535
#define SESSION_USER_ID 1000 /* inside; `user` */
#define SESSION_SHIM_OFFSET                                                                        \
	65535 /* host id of shim and nursery: block base + this; unmapped inside */

/*
 * A session's network. The resolver is what its resolv.conf names. The address of its own is there
 * for programs that ask whether there is IPv4 at all (RFC 7600: the dummy address); the listener of
 * the egress worker is bound to it and to the one port that sessions cannot bind.
 */
#define SESSION_RESOLVER        0x7f000035u /* 127.0.0.53 */
#define SESSION_RESOLVER_TEXT   "127.0.0.53"
#define SESSION_RESOLVER_PORT   53
#define SESSION_ADDRESS         0xc0000008u /* 192.0.0.8 */
#define SESSION_LISTENER_PORT   1
#define SESSION_FREE_PORTS_TEXT "2" /* the first port that a session can bind */

/* Workers of one instance take ids from one block of the instance. */
#define WORKER_ID_API      1
#define WORKER_ID_EGRESS   2
#define WORKER_ID_CONFIG   3
#define WORKER_ID_HELPER   4
#define WORKER_ID_PROVIDER 5

/* Of the api worker: who it is to a store that others share. */
#define STORE_INSTANCE_NAME "store-instance"
#define REDIS_KEY_NAME      "redis.key" /* the passwords of the sessions' users come from it */
/* The api worker's audit, in its state directory: AUDIT_FILE_NAME and .1 to .AUDIT_OLD_FILES. */
#define AUDIT_FILE_NAME     "audit.jsonl"
#define AUDIT_OLD_FILES     7
#define SNAPSHOT_FOLDER     "snapshots" /* in the same directory; the supervisor makes it */

#define HTTP_BODY_MAX_BYTES  (2 * 1024 * 1024) /* a 1 MiB component as JSON with escapes */
#define HTTP_MAX_CONNECTIONS 1024
