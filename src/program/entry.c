/* SPDX-License-Identifier: MIT */

/* Where hits come in: the thread's slot is looked up here, in a file that is
   compiled for that (memory/near.h). */

#include "memory/near.h"
#include "program/program.h"

enum kiln_status kiln_program_get(struct kiln_programs *programs,
				  const struct kiln_program_key *key,
				  struct kiln_program **out_program,
				  struct kiln_program_failure *failure)
{
	return ki_program_get(programs, key, out_program, failure,
			      ki_slot_mine);
}

enum kiln_status kiln_kernel_get(struct kiln_programs *programs,
				 const struct kiln_kernel_key *key,
				 struct kiln_kernel **out_kernel,
				 struct kiln_program_failure *failure)
{
	return ki_kernel_get(programs, key, out_kernel, failure, ki_slot_mine);
}

enum kiln_status kiln_kernel_find(struct kiln_programs *programs,
				  const void *constants, size_t constants_size,
				  void *device, const char *name,
				  struct kiln_kernel **out_kernel)
{
	return ki_kernel_find(programs, constants, constants_size, device, name,
			      out_kernel, ki_slot_mine);
}
