/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_D3D12_D3D12_H
#define KI_FRONT_D3D12_D3D12_H

/*
 * The inside of libkiln-d3d12.
 *
 *	session.c  the COM object, arguments, HRESULTs
 *	object.c   private data and names, of sessions and of our device
 *	cache.c    what the sessions of one namespace share
 *	place.c    where a disk cache lies, and what it is called
 *	control.c  ShaderCacheControl(), developer mode
 *	device.c   what hosts said of their devices, and the minimal device
 */

#include <stdatomic.h>

#include <kiln/front/d3d12.h>
#include <kiln/kiln.h>

#include "base/list.h"
#include "sys/sys.h"

static inline int ki_d3d12_is_guid(const GUID *a, const GUID *b)
{
	return !memcmp(a, b, sizeof(*a));
}

/* Over everything here that is the process's; held over fork(). */
extern struct ki_mutex ki_d3d12_lock __attribute__((visibility("hidden")));

/* ---- Private data (object.c) ------------------------------------------------ */

/* Data that callers hang on an object.  Zeros and then init. */
struct ki_d3d12_data {
	struct ki_mutex mutex;
	struct ki_list entries; /* Under mutex. */
};

void ki_d3d12_data_init(struct ki_d3d12_data *data);
/* Nobody uses it any more; interfaces in it are released. */
void ki_d3d12_data_fini(struct ki_d3d12_data *data);

/* As the methods of ID3D12Object. */
HRESULT ki_d3d12_data_get(struct ki_d3d12_data *data, const GUID *guid,
			  UINT *inout_size, void *out);
HRESULT ki_d3d12_data_set(struct ki_d3d12_data *data, const GUID *guid,
			  UINT size, const void *bytes);
HRESULT ki_d3d12_data_set_interface(struct ki_d3d12_data *data,
				    const GUID *guid, const IUnknown *object);
HRESULT ki_d3d12_data_set_name(struct ki_d3d12_data *data, LPCWSTR name);

/* ---- Devices (device.c) ------------------------------------------------------ */

/* What the host said of a device: 1, or 0 and zeros. */
int ki_d3d12_device_find(IUnknown *device, struct kiln_d3d12_device *out);

/* ---- Places (place.c) -------------------------------------------------------- */

/* What tells caches apart; sessions with equal ones share. */
struct ki_d3d12_namespace {
	GUID identifier;
	int is_disk;
	int is_versioned; /* by adapter and driver: */
	LUID adapter;
	uint64_t driver_version;
	int is_in_working_directory;
	char directory[KI_PATH_MAX]; /* of a disk cache; "": none to be had */
};

/* The directory of disk caches, not made; 0 if there is none. */
int ki_d3d12_place(char out[KI_PATH_MAX]);
/* The same in the working directory as it is now. */
int ki_d3d12_working_place(char out[KI_PATH_MAX]);

/* <guid>[-<adapter>-<driver>] */
#define KI_D3D12_NAME_BYTES 80
void ki_d3d12_name(const struct ki_d3d12_namespace *space,
		   char out[KI_D3D12_NAME_BYTES]);
/* Whether that is what a file "NAME.idx" is called, whose NAME goes to `out`. */
int ki_d3d12_is_index(const char *file, char out[KI_D3D12_NAME_BYTES]);

/* ---- Caches (cache.c) -------------------------------------------------------- */

struct ki_d3d12_cache;

/*
 * Join the cache of a namespace, or open it with the limits of `desc`.
 * Errors as kiln_d3d12_create_shader_cache_session() has them.
 */
HRESULT ki_d3d12_cache_open(const struct ki_d3d12_namespace *space,
			    const D3D12_SHADER_CACHE_SESSION_DESC *desc,
			    struct ki_d3d12_cache **out_cache);
/* One for each open; the last lets go of what is in memory. */
void ki_d3d12_cache_close(struct ki_d3d12_cache *cache);

/* As the methods of a session, whose arguments have been looked at. */
HRESULT ki_d3d12_cache_find(struct ki_d3d12_cache *cache, const void *key,
			    UINT key_size, void *value, UINT *inout_size);
HRESULT ki_d3d12_cache_store(struct ki_d3d12_cache *cache, const void *key,
			     UINT key_size, const void *value, UINT size);
void ki_d3d12_cache_delete_on_close(struct ki_d3d12_cache *cache);

/* Empty all that are open in this process, and those of this program on disk but
   in working directories. */
void ki_d3d12_cache_clear_all(void);

/* For tests: how many bits of a key's digest count, 0 for all of them. */
extern _Atomic unsigned ki_d3d12_digest_bits
	__attribute__((visibility("hidden")));

/* ---- Control (control.c) ------------------------------------------------------ */

/* The kinds that are. */
extern _Atomic unsigned ki_d3d12_disabled __attribute__((visibility("hidden")));

/* Whether sessions are disabled now. */
static inline int ki_d3d12_is_disabled(void)
{
	return !!(
		atomic_load_explicit(&ki_d3d12_disabled, memory_order_relaxed) &
		D3D12_SHADER_CACHE_KIND_FLAG_APPLICATION_MANAGED);
}

#endif /* KI_FRONT_D3D12_D3D12_H */
