/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_WHAT_H
#define KI_CLI_WHAT_H

/* What the file of an entry is, in a directory of Intel's compute runtime. */

#include <kiln/inspect.h>
#include <kiln/neo.h>

#include "base/bytes.h"
#include "base/json.h"
#include "store.h"

/* Whether the entries of this store are files that can be told. */
int ki_what_is_told(const struct ki_settings *settings);

/* All zero where nothing is to be told. */
void ki_what_look(const struct ki_settings *settings,
		  const struct kiln_entry *entry,
		  struct kiln_neo_description *out_what);

/* "zebin for Tiger Lake: first second"; "" of what is unknown. */
void ki_what_line(const struct kiln_neo_description *what,
		  struct ki_bytes *out);

/* An object "what". */
void ki_what_json(const struct kiln_neo_description *what,
		  struct ki_json *json);

#endif /* KI_CLI_WHAT_H */
