/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_DOCTOR_H
#define KI_CLI_DOCTOR_H

/* What the parts of `kiln doctor` share. */

#include <kiln/inspect.h>

#include "probe.h"
#include "sys/sys.h"

/* BAD means that caching does not work. */
enum ki_doctor_result { KI_DOCTOR_FINE, KI_DOCTOR_NOTE, KI_DOCTOR_BAD };

struct ki_doctor_check {
	const char *name;
	enum ki_doctor_result result;
	char words[1024];
	const char *remedy; /* or NULL */
};

struct ki_doctor {
	struct ki_doctor_check *checks;
	int n, room;
	int is_short; /* of memory: something is not among them */
	struct kiln_config *config;
	char layer[KI_PATH_MAX];
	int layer_is_there;
	char worker[KI_PATH_MAX];
	int has_jobs;		       /* written, and made */
	struct ki_probe_loader loader; /* under the layer */
};

void ki_doctor_say(struct ki_doctor *doctor, const char *name,
		   enum ki_doctor_result result, const char *remedy,
		   const char *format, ...)
	__attribute__((format(printf, 5, 6)));

/* Whether a store in `path` has room to grow, or, where there is none (`info` is
   NULL), to begin. */
void ki_doctor_room(struct ki_doctor *doctor, const char *path,
		    const struct kiln_store_info *info);

/* Level Zero: the proxy driver, the loader, the driver, and a small program. */
void ki_doctor_levelzero(struct ki_doctor *doctor);

/* Start the helper where the settings want one; 0: it is said why there is none. */
int ki_doctor_start_remote(struct ki_doctor *doctor);
/* The servers, each tried end to end by the helper. */
void ki_doctor_remote(struct ki_doctor *doctor);

#endif /* KI_CLI_DOCTOR_H */
