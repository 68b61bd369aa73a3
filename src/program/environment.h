/* SPDX-License-Identifier: MIT */
#ifndef KI_PROGRAM_ENVIRONMENT_H
#define KI_PROGRAM_ENVIRONMENT_H

/* kiln_sycl_config_read() of variables that tests can say: NAME=VALUE,
   NULL-ended. */

#include <kiln/program.h>

enum kiln_status ki_sycl_config_read(const char *const *variables,
				     struct kiln_sycl_config **out,
				     char **out_message);

#endif /* KI_PROGRAM_ENVIRONMENT_H */
