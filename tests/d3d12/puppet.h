/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_D3D12_PUPPET_H
#define KI_TESTS_D3D12_PUPPET_H

/*
 * Processes that do with one disk cache what they are told, a step at a time,
 * and tell what came of it: so that a test decides in which order two of them
 * are at it.  A puppet has at most one session.
 *
 *	o O  open it with version 1, with version 2
 *	s    store the puppet's own value
 *	d    have it deleted when all sessions are gone
 *	C    clear all caches (ShaderCacheControl)
 *	c    close
 *	k    die, by SIGKILL
 */

#include <stdint.h>
#include <sys/types.h>

#include <kiln/front/d3d12.h>

/* Who may have stored something: two puppets, and whoever was there before. */
#define PUPPETS_MAX 3

struct puppet {
	pid_t pid; /* 0: none */
	int fd;
	unsigned index;
};

struct puppet_answer {
	HRESULT result;
	unsigned char has_session;
	unsigned char found[PUPPETS_MAX]; /* whose values, if it has one */
};

/* What a step answers that needs a session where there is none. */
#define PUPPET_IDLE S_FALSE

void puppet_start(struct puppet *puppet, unsigned index);
/* Its end; nothing if it has none. */
void puppet_stop(struct puppet *puppet);

/* `cache` counts from 1.  1, or 0 when the puppet died, which it may be told to. */
int puppet_step(struct puppet *puppet, char step, uint32_t cache,
		struct puppet_answer *out_answer);

/* The same in two halves: what was told is done one after the other. */
void puppet_tell(struct puppet *puppet, char step, uint32_t cache);
int puppet_hear(struct puppet *puppet, struct puppet_answer *out_answer);
/* By SIGKILL, whatever it is at; nothing if it is no more. */
void puppet_kill(struct puppet *puppet);

/* What a puppet finds now; the same without a step. */
int puppet_look(struct puppet *puppet, struct puppet_answer *out_answer);

#endif /* KI_TESTS_D3D12_PUPPET_H */
