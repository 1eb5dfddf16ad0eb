/*
 * What the worker says about itself: readiness and metrics.
 */
#pragma once

struct app;
struct launch_facts;

/* What the supervisor says of the service as a whole, and of our log level. */
void observe_facts(struct app *app, const struct launch_facts *facts);
/* The worker is in another phase, or the store in another state. */
void observe_refresh(struct app *app);
