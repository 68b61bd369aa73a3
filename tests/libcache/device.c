/* SPDX-License-Identifier: MIT */

#include "device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint8_t device_byte(uint64_t offset)
{
	return (uint8_t)((offset * 2654435761u) >> 13 ^ offset);
}

void device_init(cache_devCtx_t *device, size_t size)
{
	*device = (cache_devCtx_t){ .bytes = malloc(size), .size = size };
	if (!device->bytes)
		abort();
	for (size_t i = 0; i < size; i++)
		device->bytes[i] = device_byte(i);
}

void device_reset(cache_devCtx_t *device)
{
	device->n_reads = device->n_writes = 0;
	device->bytes_read = device->bytes_written = 0;
}

/* Whether all goes well; if not, what the callback returns. */
static ssize_t enter(cache_devCtx_t *device, enum device_call call,
		     uint64_t offset, size_t count)
{
	const ssize_t answer = call == DEVICE_READ ? device->read_answer
						   : device->write_answer;
	ssize_t other;

	if (atomic_fetch_add(&device->n_running, 1))
		atomic_fetch_add(&device->n_overlaps, 1);
	if (offset > device->size || count > device->size - offset) {
		atomic_fetch_add(&device->n_outside, 1);
		return -ENXIO;
	}
	other = device->hook ? device->hook(device, call, offset, count) : 0;
	return other ? other : answer;
}

static size_t transferred(const cache_devCtx_t *device, size_t count)
{
	return device->bytes_max && count > device->bytes_max
		       ? device->bytes_max
		       : count;
}

static ssize_t result(const cache_devCtx_t *device, ssize_t wrong, size_t n)
{
	if (wrong == DEVICE_NOTHING)
		return 0;
	return wrong ? wrong : (ssize_t)(n + device->too_much);
}

static ssize_t read_device(uint64_t offset, void *buffer, size_t count,
			   cache_devCtx_t *device)
{
	const ssize_t wrong = enter(device, DEVICE_READ, offset, count);
	const size_t n = transferred(device, count);

	atomic_fetch_add(&device->n_reads, 1);
	if (!wrong) {
		memcpy(buffer, device->bytes + offset, n);
		atomic_fetch_add(&device->bytes_read, n);
		device->last_offset = offset;
		device->last_count = count;
	}
	atomic_fetch_sub(&device->n_running, 1);
	return result(device, wrong, n);
}

static ssize_t write_device(uint64_t offset, const void *buffer, size_t count,
			    cache_devCtx_t *device)
{
	const ssize_t wrong = enter(device, DEVICE_WRITE, offset, count);
	const size_t n = transferred(device, count);

	atomic_fetch_add(&device->n_writes, 1);
	if (!wrong) {
		memcpy(device->bytes + offset, buffer, n);
		atomic_fetch_add(&device->bytes_written, n);
		device->last_offset = offset;
		device->last_count = count;
	}
	atomic_fetch_sub(&device->n_running, 1);
	return result(device, wrong, n);
}

cache_ops_t device_ops(cache_devCtx_t *device)
{
	return (cache_ops_t){ .readCb = read_device,
			      .writeCb = write_device,
			      .ctx = device };
}
