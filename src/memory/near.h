/* SPDX-License-Identifier: MIT */
#ifndef KI_MEMORY_NEAR_H
#define KI_MEMORY_NEAR_H

/*
 * The calling thread's slot without a call that costs a hit its registers: for
 * files of kiln_near_sources alone.  Where the variable is reached by a
 * descriptor, glibc before 2.40 may overwrite vectors on the way, of which the
 * compiler knows nothing; so these files are compiled without any.
 */

#include "memory/slots.h"

#if defined(KI_NEAR) && (defined(__SSE__) || defined(__MMX__))
#error "a descriptor may cost vectors: -mgeneral-regs-only is missing"
#endif

#pragma GCC visibility push(hidden)
/* NULL in a thread that is new.  Whatever else is known of a thread (its
   number, where its stack lies) may be another's after its death. */
extern __thread struct ki_slot *ki_slot_mine;
#pragma GCC visibility pop

#endif /* KI_MEMORY_NEAR_H */
