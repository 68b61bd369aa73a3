/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_WHAT_H
#define KI_CLI_WHAT_H

/* What the file of an entry is, in a directory shared with other programs. */

#include <kiln/inspect.h>
#include <kiln/neo.h>

#include "base/bytes.h"
#include "base/json.h"
#include "store.h"
#include "sycl.h"

/* Whether the entries of this store are files that can be told. */
int ki_what_is_told(const struct ki_settings *settings);
/* Whether it is a directory of DPC++'s. */
int ki_what_is_sycl(const struct ki_settings *settings);
/* Whose the entries are that are not kiln's: "a driver's own". */
const char *ki_what_owner(const struct ki_settings *settings);

struct ki_what {
	struct kiln_neo_description form; /* with `sycl`, of the binary in it */
	struct ki_sycl_parts sycl;
	int is_sycl;
};

/* All zero where nothing is to be told. */
void ki_what_look(const struct ki_settings *settings,
		  const struct kiln_entry *entry, struct ki_what *out_what);

/* What its file says of the device it is for, as it says it; "". */
const char *ki_what_device(const struct ki_what *what);

/* "zebin for Tiger Lake: first second"; "" of what is unknown. */
void ki_what_line(const struct ki_what *what, struct ki_bytes *out);

/* An object "what". */
void ki_what_json(const struct ki_what *what, struct ki_json *json);

#endif /* KI_CLI_WHAT_H */
