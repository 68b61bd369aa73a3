/* SPDX-License-Identifier: MIT */

/*
 * What the sessions of one namespace share: a kiln, opened by the first of them
 * with its limits and closed by the last.
 *
 *	          open                     last close
 *	  (absent) ---> OPENING ---> OPEN ---> CLOSING ---> (absent)
 *
 * Opening and closing touch the disk, so they are done outside the registry's
 * lock; who meets a cache in between waits for that namespace alone.
 *
 * FindValue() is called twice for each value, for its size and for its bytes.
 * What the first call found is kept for the second in a place of the thread's own:
 * it costs no second look-up, and an entry that is evicted in between is whole all
 * the same (S58).  It is not handed out after a wipe, of whichever process, and is
 * held until the thread's next look or the cache closes.  Places have no locks: a
 * thread has a number while it lives, and those that come when all numbers are
 * taken do without.
 *
 * A forked child knows nothing of the caches of its parent.
 */

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <kiln/inspect.h>

#include "base/bytes.h"
#include "front/d3d12/d3d12.h"

#define LABEL "name" /* 4 bytes are the quickest to hash */

/* Kept between two calls, for keys up to so many bytes. */
#define KEPT_KEY_BYTES 200
#define PREFETCH_BYTES 1024
#define N_KEPT	       32

#define PUT_TRIES 5 /* of 20 ms, where the store is busy */

/* A value, and its blob's one reference. */
struct found {
	struct kiln_blob *blob; /* NULL: none */
	const void *data;
	UINT size;
};

/* Its thread's alone. */
struct kept {
	_Alignas(64) struct found found;
	uint64_t generation;
	UINT key_size;
	unsigned char key[KEPT_KEY_BYTES];
};

enum state { OPENING, OPEN, CLOSING };

struct ki_d3d12_cache {
	/* Fixed after creation. */
	struct ki_d3d12_namespace space;
	UINT64 version;
	uint64_t fork_generation;
	struct kiln *kiln; /* since OPEN */
	/* Under ki_d3d12_lock. */
	struct ki_list link;
	enum state state;
	unsigned refs;

	_Atomic uint64_t wipes; /* of this process */
	struct kept kept[N_KEPT];
};

struct ki_mutex ki_d3d12_lock = KI_MUTEX_INIT(FRONT);
static struct ki_list caches = { &caches, &caches }; /* Under ki_d3d12_lock. */
static struct ki_cond changed;			     /* with it */

_Atomic unsigned ki_d3d12_digest_bits;

/* ---- Between two calls -------------------------------------------------------- */

#define NO_NUMBER N_KEPT

static _Atomic uint32_t numbers_taken; /* a bit for each */
static pthread_key_t at_exit;
static _Thread_local unsigned own_number /* and one; 0: not asked for yet */
	__attribute__((tls_model("initial-exec")));

static void return_number(void *arg)
{
	unsigned number = (unsigned)(uintptr_t)arg - 1;

	own_number = NO_NUMBER + 1;
	atomic_fetch_and(&numbers_taken, ~(1u << number));
}

static unsigned take_number(void)
{
	uint32_t taken = atomic_load(&numbers_taken);
	unsigned number;

	do {
		if (taken == UINT32_MAX)
			return NO_NUMBER;
		number = (unsigned)__builtin_ctz(~taken);
	} while (!atomic_compare_exchange_weak(&numbers_taken, &taken,
					       taken | 1u << number));
	if (!pthread_setspecific(at_exit, (void *)(uintptr_t)(number + 1)))
		return number;
	atomic_fetch_and(&numbers_taken, ~(1u << number));
	return NO_NUMBER;
}

/* NULL: none. */
static struct kept *place_of(struct ki_d3d12_cache *cache)
{
	if (__builtin_expect(!own_number, 0))
		own_number = take_number() + 1;
	return own_number > N_KEPT ? NULL : &cache->kept[own_number - 1];
}

/* In memory alone nobody else removes anything. */
static uint64_t generation_of(const struct ki_d3d12_cache *cache)
{
	return atomic_load_explicit(&cache->wipes, memory_order_acquire) +
	       (cache->space.is_disk ? kiln_generation(cache->kiln) : 0);
}

/* What was found by the last call, if it is of this key and still is to be had:
   1.  Nothing is kept afterwards. */
static int take_kept(struct kept *kept, const void *key, UINT key_size,
		     uint64_t generation, struct found *out)
{
	if (!kept || !kept->found.blob)
		return 0;
	*out = kept->found;
	kept->found.blob = NULL;
	if (kept->key_size == key_size && kept->generation == generation &&
	    !memcmp(kept->key, key, key_size))
		return 1;
	kiln_blob_unref(out->blob);
	return 0;
}

/* There is nothing yet.  Takes over the reference. */
static void keep(struct kept *kept, const void *key, UINT key_size,
		 uint64_t generation, const struct found *found)
{
	if (!kept || key_size > KEPT_KEY_BYTES) {
		kiln_blob_unref(found->blob);
		return;
	}
	kept->found = *found;
	kept->generation = generation;
	kept->key_size = key_size;
	memcpy(kept->key, key, key_size);
}

/* Nobody is in a call. */
static void drop_kept(struct ki_d3d12_cache *cache)
{
	for (size_t i = 0; i < N_KEPT; i++)
		kiln_blob_unref(cache->kept[i].found.blob);
}

/* ---- Keys ------------------------------------------------------------------------ */

static void cut_digest(struct kiln_key *key, unsigned n_bits)
{
	uint8_t digest[KILN_DIGEST_BYTES] = { 0 };

	digest[0] = (uint8_t)(kiln_key_digest(key)[0] & ((1u << n_bits) - 1));
	kiln_key_force_digest(key, digest);
}

/* To be freed in any case. */
static enum kiln_status make_key(struct kiln_key_room *room, const void *bytes,
				 UINT size, struct kiln_key **out_key)
{
	unsigned n_bits = atomic_load_explicit(&ki_d3d12_digest_bits,
					       memory_order_relaxed);
	enum kiln_status status;

	status = kiln_key_of(room, LABEL, bytes, size, out_key);
	if (!status && n_bits)
		cut_digest(*out_key, n_bits);
	return status;
}

/* ---- Values ---------------------------------------------------------------------- */

/* Of a look-up that found nothing: what is wrong with the files is a miss. */
static HRESULT answer_of_find(enum kiln_status status)
{
	switch (status) {
	case KILN_E_COLLISION:
		return DXGI_ERROR_CACHE_HASH_COLLISION;
	case KILN_E_NO_MEMORY:
		return E_OUTOFMEMORY;
	case KILN_E_FORKED:
		return DXGI_ERROR_NOT_CURRENTLY_AVAILABLE;
	default:
		return DXGI_ERROR_NOT_FOUND;
	}
}

static HRESULT answer_of_store(enum kiln_status status)
{
	switch (status) {
	case KILN_OK:
		return S_OK;
	case KILN_EXISTS:
		return DXGI_ERROR_ALREADY_EXISTS;
	case KILN_E_COLLISION:
		return DXGI_ERROR_CACHE_HASH_COLLISION;
	case KILN_E_FULL:
	case KILN_E_TOO_LARGE:
		return DXGI_ERROR_CACHE_FULL;
	case KILN_E_NO_MEMORY:
		return E_OUTOFMEMORY;
	case KILN_E_IO:
	case KILN_E_FORMAT:
		return DXGI_ERROR_CACHE_CORRUPT;
	default:
		return DXGI_ERROR_NOT_CURRENTLY_AVAILABLE;
	}
}

/* Whoever asks for the size asks for the bytes next. */
static void prefetch(const struct found *found)
{
	const char *data = found->data;

	for (size_t i = 0; i < PREFETCH_BYTES && i < found->size; i += 64)
		__builtin_prefetch(data + i);
}

static enum kiln_status get(struct ki_d3d12_cache *cache, const void *bytes,
			    UINT size, struct found *out)
{
	struct kiln_key_room room;
	struct kiln_key *key;
	enum kiln_status status = make_key(&room, bytes, size, &key);

	if (!status)
		status = kiln_get(cache->kiln, key, &out->blob);
	kiln_key_free(key);
	if (status)
		return status;
	out->data = kiln_blob_data(out->blob);
	out->size = (UINT)kiln_blob_size(out->blob);
	prefetch(out);
	return KILN_OK;
}

static HRESULT copy_out(const struct found *found, void *value,
			UINT *inout_size)
{
	UINT room = *inout_size;

	*inout_size = found->size;
	if (!value)
		return S_OK;
	if (room < found->size)
		return DXGI_ERROR_MORE_DATA;
	memcpy(value, found->data, found->size);
	return S_OK;
}

static int is_forked(const struct ki_d3d12_cache *cache)
{
	return cache->fork_generation !=
	       atomic_load_explicit(&ki_fork_counter, memory_order_relaxed);
}

HRESULT ki_d3d12_cache_find(struct ki_d3d12_cache *cache, const void *key,
			    UINT key_size, void *value, UINT *inout_size)
{
	struct kept *kept = place_of(cache);
	struct found found;
	enum kiln_status status;
	uint64_t generation;
	HRESULT result;

	if (is_forked(cache))
		return DXGI_ERROR_NOT_CURRENTLY_AVAILABLE;
	generation = generation_of(cache);
	if (!take_kept(kept, key, key_size, generation, &found)) {
		status = get(cache, key, key_size, &found);
		if (status)
			return answer_of_find(status);
	}
	result = copy_out(&found, value, inout_size);
	if (value && result == S_OK)
		kiln_blob_unref(found.blob);
	else
		keep(kept, key, key_size, generation, &found);
	return result;
}

/* A store that makes room for another writer is busy for a moment. */
static enum kiln_status put(struct kiln *kiln, const struct kiln_key *key,
			    const void *value, UINT size)
{
	enum kiln_status status;
	int tries = 0;

	do
		status = kiln_put(kiln, key, value, size, NULL, 0);
	while (status == KILN_E_TIMEOUT && ++tries < PUT_TRIES);
	return status;
}

HRESULT ki_d3d12_cache_store(struct ki_d3d12_cache *cache, const void *bytes,
			     UINT key_size, const void *value, UINT size)
{
	struct kiln_key_room room;
	struct kiln_key *key;
	enum kiln_status status;

	status = make_key(&room, bytes, key_size, &key);
	if (!status)
		status = put(cache->kiln, key, value, size);
	kiln_key_free(key);
	return answer_of_store(status);
}

void ki_d3d12_cache_delete_on_close(struct ki_d3d12_cache *cache)
{
	if (cache->space.is_disk)
		(void)kiln_remove_at_close(cache->kiln);
}

/* ---- Opening --------------------------------------------------------------------- */

static enum kiln_status open_kiln(const struct ki_d3d12_namespace *space,
				  const D3D12_SHADER_CACHE_SESSION_DESC *desc,
				  int is_on_disk, struct kiln **out_kiln)
{
	char name[KI_D3D12_NAME_BYTES];
	char url[KI_PATH_MAX + sizeof(name) + 8];
	struct kiln_options options;

	kiln_options_init(&options);
	options.memory_bytes_max = desc->MaximumInMemoryCacheSizeBytes;
	options.memory_entries_max = desc->MaximumInMemoryCacheEntries;
	options.memory_order = KILN_MEMORY_INSERTION;
	if (is_on_disk) {
		ki_d3d12_name(space, name);
		snprintf(url, sizeof(url), "log:%s#%s", space->directory, name);
		options.store_url = url;
		options.store_bytes_max = 0;
		options.store_quota_bytes = desc->MaximumValueFileSizeBytes;
		options.user_version = desc->Version;
		options.flags = KILN_OPEN_SESSION | KILN_OPEN_REFUSE_FULL |
				KILN_OPEN_NO_BUILD_LOCK;
		if (space->is_in_working_directory)
			options.flags |= KILN_OPEN_OWN_FILES;
	}
	return kiln_open(&options, out_kiln);
}

/* What somebody left who is no kiln, or one of another time. */
static void remove_files(const struct ki_d3d12_namespace *space)
{
	const struct ki_sys *sys = &ki_sys_posix;
	char name[KI_D3D12_NAME_BYTES], path[KI_PATH_MAX];
	struct ki_dir *dir;
	const char *file;
	size_t size;

	ki_d3d12_name(space, name);
	size = strlen(name);
	if (sys->opendir(sys, space->directory, &dir))
		return;
	while (sys->readdir(sys, dir, &file) > 0)
		if (!strncmp(file, name, size) && file[size] == '.' &&
		    !ki_path_join(path, space->directory, file))
			(void)sys->unlink(sys, path);
	sys->closedir(sys, dir);
}

/* Where the index should be, lies something else: it is not that there is no
   place, or no permission. */
static int is_obstructed(const struct ki_d3d12_namespace *space)
{
	const struct ki_sys *sys = &ki_sys_posix;
	char name[KI_D3D12_NAME_BYTES + 4], path[KI_PATH_MAX];
	struct ki_file_info info;

	ki_d3d12_name(space, name);
	strcat(name, ".idx");
	return !ki_path_join(path, space->directory, name) &&
	       !sys->lstat(sys, path, &info) && !S_ISREG(info.mode);
}

/*
 * A store that cannot be used: S_OK, when there is a kiln that works without.
 */
static HRESULT open_without(const struct ki_d3d12_namespace *space,
			    const D3D12_SHADER_CACHE_SESSION_DESC *desc,
			    enum kiln_status why, struct kiln **inout_kiln)
{
	kiln_close(*inout_kiln);
	*inout_kiln = NULL;
	switch (why) {
	case KILN_E_OWNER:
		return E_ACCESSDENIED;
	case KILN_E_FORMAT:
		return DXGI_ERROR_CACHE_CORRUPT;
	case KILN_E_NO_MEMORY:
		return E_OUTOFMEMORY;
	default:
		if (is_obstructed(space))
			return DXGI_ERROR_CACHE_CORRUPT;
		return open_kiln(space, desc, 0, inout_kiln) ? E_OUTOFMEMORY
							     : S_OK;
	}
}

static HRESULT open_any(const struct ki_d3d12_namespace *space,
			const D3D12_SHADER_CACHE_SESSION_DESC *desc,
			struct kiln **out_kiln)
{
	const int is_on_disk = space->is_disk && *space->directory;
	enum kiln_status status;

	status = open_kiln(space, desc, is_on_disk, out_kiln);
	if (!status && kiln_store_status(*out_kiln) == KILN_E_FORMAT) {
		kiln_close(*out_kiln);
		*out_kiln = NULL;
		remove_files(space);
		status = open_kiln(space, desc, is_on_disk, out_kiln);
	}
	if (status == KILN_EXISTS)
		return DXGI_ERROR_ALREADY_EXISTS;
	if (status)
		return E_OUTOFMEMORY;
	status = kiln_store_status(*out_kiln);
	return status < 0 ? open_without(space, desc, status, out_kiln) : S_OK;
}

/* ---- The registry ------------------------------------------------------------------ */

static void before_fork(void)
{
	pthread_mutex_lock(&ki_d3d12_lock.mutex);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&ki_d3d12_lock.mutex);
}

__attribute__((constructor)) static void install(void)
{
	ki_cond_init(&changed);
	/* Without a key, threads have no numbers. */
	if (pthread_key_create(&at_exit, return_number))
		atomic_store(&numbers_taken, UINT32_MAX);
	pthread_atfork(before_fork, after_fork, after_fork);
}

static int is_same(const struct ki_d3d12_namespace *a,
		   const struct ki_d3d12_namespace *b)
{
	return ki_d3d12_is_guid(&a->identifier, &b->identifier) &&
	       a->is_disk == b->is_disk && a->is_versioned == b->is_versioned &&
	       a->adapter.LowPart == b->adapter.LowPart &&
	       a->adapter.HighPart == b->adapter.HighPart &&
	       a->driver_version == b->driver_version &&
	       (!a->is_disk || !strcmp(a->directory, b->directory));
}

static struct ki_d3d12_cache *find_locked(
	const struct ki_d3d12_namespace *space) KI_REQUIRES(&ki_d3d12_lock)
{
	struct ki_list *link;

	ki_list_for_each (link, &caches) {
		struct ki_d3d12_cache *cache =
			ki_container(link, struct ki_d3d12_cache, link);

		if (!is_forked(cache) && is_same(&cache->space, space))
			return cache;
	}
	return NULL;
}

static struct ki_d3d12_cache *new_cache(const struct ki_d3d12_namespace *space,
					UINT64 version)
{
	struct ki_d3d12_cache *cache =
		aligned_alloc(_Alignof(struct ki_d3d12_cache), sizeof(*cache));

	if (!cache)
		return NULL;
	memset(cache, 0, sizeof(*cache));
	cache->space = *space;
	cache->version = version;
	cache->fork_generation = ki_fork_generation();
	cache->state = OPENING;
	cache->refs = 1;
	return cache;
}

static void free_cache(struct ki_d3d12_cache *cache)
{
	if (!cache)
		return;
	kiln_close(cache->kiln);
	free(cache);
}

/* Open it for everybody who waits; the entry goes again if that fails. */
static HRESULT open_new(struct ki_d3d12_cache *cache,
			const D3D12_SHADER_CACHE_SESSION_DESC *desc)
{
	HRESULT result = open_any(&cache->space, desc, &cache->kiln);

	ki_mutex_lock(&ki_d3d12_lock);
	if (FAILED(result))
		ki_list_remove(&cache->link);
	else
		cache->state = OPEN;
	ki_cond_signal_all(&changed);
	ki_mutex_unlock(&ki_d3d12_lock);
	if (FAILED(result))
		free_cache(cache);
	return result;
}

/* One that is open, or NULL when there is none and nobody is at it. */
static struct ki_d3d12_cache *settled_locked(
	const struct ki_d3d12_namespace *space) KI_REQUIRES(&ki_d3d12_lock)
{
	struct ki_d3d12_cache *cache;

	while ((cache = find_locked(space)) && cache->state != OPEN)
		ki_cond_wait(&changed, &ki_d3d12_lock);
	return cache;
}

HRESULT ki_d3d12_cache_open(const struct ki_d3d12_namespace *space,
			    const D3D12_SHADER_CACHE_SESSION_DESC *desc,
			    struct ki_d3d12_cache **out_cache)
{
	struct ki_d3d12_cache *cache, *made;
	HRESULT result = S_OK;

	made = new_cache(space, desc->Version);
	if (!made)
		return E_OUTOFMEMORY;
	ki_mutex_lock(&ki_d3d12_lock);
	cache = settled_locked(space);
	if (!cache)
		ki_list_append(&caches, &made->link);
	else if (cache->version != desc->Version)
		result = DXGI_ERROR_ALREADY_EXISTS;
	else
		cache->refs++;
	ki_mutex_unlock(&ki_d3d12_lock);
	if (!cache)
		result = open_new(made, desc);
	else
		free_cache(made);
	if (SUCCEEDED(result))
		*out_cache = cache ? cache : made;
	return result;
}

void ki_d3d12_cache_close(struct ki_d3d12_cache *cache)
{
	int is_last;

	ki_mutex_lock(&ki_d3d12_lock);
	is_last = !--cache->refs;
	if (is_last)
		cache->state = CLOSING;
	ki_mutex_unlock(&ki_d3d12_lock);
	if (!is_last)
		return;
	drop_kept(cache);
	kiln_close(cache->kiln);
	ki_mutex_lock(&ki_d3d12_lock);
	ki_list_remove(&cache->link);
	ki_cond_signal_all(&changed);
	ki_mutex_unlock(&ki_d3d12_lock);
	cache->kiln = NULL;
	free_cache(cache);
}

/* ---- Clearing -------------------------------------------------------------------- */

/* The next one that is open behind `cache` (NULL: the first), with a reference;
   that on `cache` goes. */
static struct ki_d3d12_cache *next_open(struct ki_d3d12_cache *cache)
{
	struct ki_d3d12_cache *next = NULL;
	struct ki_list *link;

	ki_mutex_lock(&ki_d3d12_lock);
	link = cache ? cache->link.next : caches.next;
	for (; link != &caches && !next; link = link->next) {
		next = ki_container(link, struct ki_d3d12_cache, link);
		if (next->state != OPEN || is_forked(next))
			next = NULL;
	}
	if (next)
		next->refs++;
	ki_mutex_unlock(&ki_d3d12_lock);
	if (cache)
		ki_d3d12_cache_close(cache);
	return next;
}

static void clear_open(void)
{
	struct ki_d3d12_cache *cache = NULL;

	while ((cache = next_open(cache))) {
		(void)kiln_wipe(cache->kiln);
		atomic_fetch_add(&cache->wipes, 1);
	}
}

static void clear_closed(const char *directory, const char *name)
{
	char url[KI_PATH_MAX + KI_D3D12_NAME_BYTES + 8];
	struct kiln_options options;
	struct kiln *kiln;

	snprintf(url, sizeof(url), "log:%s#%s", directory, name);
	kiln_options_init(&options);
	options.store_url = url;
	options.flags = KILN_OPEN_NO_MEMORY;
	if (kiln_open(&options, &kiln))
		return;
	(void)kiln_wipe(kiln);
	kiln_close(kiln);
}

/* NULs behind each; a wipe makes files of the same name. */
static void list_closed(const char *directory, struct ki_bytes *names)
{
	const struct ki_sys *sys = &ki_sys_posix;
	char name[KI_D3D12_NAME_BYTES];
	struct ki_dir *dir;
	const char *file;

	if (sys->opendir(sys, directory, &dir))
		return;
	while (sys->readdir(sys, dir, &file) > 0)
		if (ki_d3d12_is_index(file, name))
			ki_bytes_add(names, name, strlen(name) + 1);
	sys->closedir(sys, dir);
}

void ki_d3d12_cache_clear_all(void)
{
	char directory[KI_PATH_MAX];
	struct ki_bytes names;
	const char *name;

	clear_open();
	if (!ki_d3d12_place(directory))
		return;
	ki_bytes_init(&names);
	list_closed(directory, &names);
	if (!names.failed)
		for (name = (const char *)names.data;
		     name && name < (const char *)names.data + names.size;
		     name += strlen(name) + 1)
			clear_closed(directory, name);
	ki_bytes_fini(&names);
}
