/*
 * Resource use of a command.
 */
#pragma once

struct message;
struct rusage;

/* Times and peak memory of a reaped process and the descendants it waited for. */
void usage_fill(const struct rusage *usage, struct message *message);
