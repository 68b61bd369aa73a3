/* SPDX-License-Identifier: MIT */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define COBJMACROS
#include "d3d12/puppet.h"

#define LOOK	    '?'
#define VALUE_BYTES 512

struct order {
	char step;
	uint32_t cache;
};

/* ---- In the puppet ------------------------------------------------------------- */

struct self {
	unsigned index;
	ID3D12Device9 *device;
	ID3D12ShaderCacheSession *session; /* NULL: none */
};

static HRESULT open_session(struct self *self, uint32_t cache, UINT64 version)
{
	const D3D12_SHADER_CACHE_SESSION_DESC desc = {
		.Identifier = { .Data1 = cache },
		.Mode = D3D12_SHADER_CACHE_MODE_DISK,
		.Version = version,
	};

	return ID3D12Device9_CreateShaderCacheSession(
		self->device, &desc, &IID_ID3D12ShaderCacheSession,
		(void **)&self->session);
}

static void make_value(unsigned whose, unsigned char value[VALUE_BYTES])
{
	memset(value, 'a' + (int)whose, VALUE_BYTES);
}

static HRESULT take_step(struct self *self, const struct order *order)
{
	unsigned char value[VALUE_BYTES];
	ID3D12ShaderCacheSession *session = self->session;

	switch (order->step) {
	case 'o':
	case 'O':
		return open_session(self, order->cache,
				    order->step == 'o' ? 1 : 2);
	case 'C':
		return ID3D12Device9_ShaderCacheControl(
			self->device,
			D3D12_SHADER_CACHE_KIND_FLAG_APPLICATION_MANAGED,
			D3D12_SHADER_CACHE_CONTROL_FLAG_CLEAR);
	case 'k':
		raise(SIGKILL);
		break;
	}
	if (!session)
		return PUPPET_IDLE;
	switch (order->step) {
	case 's':
		make_value(self->index, value);
		return ID3D12ShaderCacheSession_StoreValue(
			session, &self->index, sizeof(self->index), value,
			sizeof(value));
	case 'd':
		ID3D12ShaderCacheSession_SetDeleteOnDestroy(session);
		break;
	case 'c':
		self->session = NULL;
		return (HRESULT)ID3D12ShaderCacheSession_Release(session);
	}
	return S_OK;
}

/* A wrong value or answer is the end. */
static unsigned char finds(struct self *self, unsigned whose)
{
	unsigned char value[VALUE_BYTES], expected[VALUE_BYTES];
	UINT size = sizeof(value);
	HRESULT result = ID3D12ShaderCacheSession_FindValue(
		self->session, &whose, sizeof(whose), value, &size);

	if (result == DXGI_ERROR_NOT_FOUND)
		return 0;
	make_value(whose, expected);
	if (result != S_OK || size != sizeof(value) ||
	    memcmp(value, expected, sizeof(value)))
		_exit(2);
	return 1;
}

static int play(unsigned index, int fd)
{
	struct self self = { .index = index };
	struct order order;

	kiln_d3d12_set_developer_mode(1);
	if (kiln_d3d12_create_device(NULL, &IID_ID3D12Device9,
				     (void **)&self.device))
		return 1;
	while (read(fd, &order, sizeof(order)) == sizeof(order)) {
		struct puppet_answer answer = { .result = S_OK };

		if (order.step != LOOK)
			answer.result = take_step(&self, &order);
		answer.has_session = !!self.session;
		for (unsigned i = 0; self.session && i < PUPPETS_MAX; i++)
			answer.found[i] = finds(&self, i);
		if (write(fd, &answer, sizeof(answer)) != sizeof(answer))
			return 1;
	}
	if (self.session)
		ID3D12ShaderCacheSession_Release(self.session);
	return ID3D12Device9_Release(self.device) != 0;
}

/* ---- From outside ---------------------------------------------------------------- */

void puppet_start(struct puppet *puppet, unsigned index)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
		abort();
	puppet->index = index;
	puppet->fd = fds[0];
	puppet->pid = fork();
	if (puppet->pid < 0)
		abort();
	if (!puppet->pid) {
		close(fds[0]);
		_exit(play(index, fds[1]));
	}
	close(fds[1]);
}

void puppet_stop(struct puppet *puppet)
{
	if (!puppet->pid)
		return;
	close(puppet->fd);
	while (waitpid(puppet->pid, NULL, 0) < 0 && errno == EINTR)
		;
	puppet->pid = 0;
}

void puppet_kill(struct puppet *puppet)
{
	if (puppet->pid)
		kill(puppet->pid, SIGKILL);
	puppet_stop(puppet);
}

void puppet_tell(struct puppet *puppet, char step, uint32_t cache)
{
	const struct order order = { step, cache };

	/* Of one that has died puppet_hear() says so. */
	(void)send(puppet->fd, &order, sizeof(order), MSG_NOSIGNAL);
}

int puppet_hear(struct puppet *puppet, struct puppet_answer *out_answer)
{
	if (puppet->pid && read(puppet->fd, out_answer, sizeof(*out_answer)) ==
				   sizeof(*out_answer))
		return 1;
	puppet_stop(puppet);
	return 0;
}

int puppet_step(struct puppet *puppet, char step, uint32_t cache,
		struct puppet_answer *out_answer)
{
	puppet_tell(puppet, step, cache);
	return puppet_hear(puppet, out_answer);
}

int puppet_look(struct puppet *puppet, struct puppet_answer *out_answer)
{
	return puppet_step(puppet, LOOK, 0, out_answer);
}
