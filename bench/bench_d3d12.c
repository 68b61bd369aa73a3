/* SPDX-License-Identifier: MIT */

/*
 * Shader cache sessions against what lies below them, a kiln with the same bytes in
 * the same order.  FindValue() makes a key of the bytes that it is given, and so does
 * who calls kiln_get() in its place; keys of puts are finished beforehand.
 *
 * Everything is read, and compared with what it must be, before each timed turn;
 * turns are interleaved, and ratios are of one round, of which medians count.
 * Files are in memory if there is room: a file system on a disk spends its time on
 * other things.  Groups by name: find threads store open.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COBJMACROS
#include <kiln/front/d3d12.h>
#include <kiln/kiln.h>

#include "bench.h"
#include "together.h"

#define VALUE_BYTES 4096
#define ROUNDS_MAX  15
#define LABEL	    "key"

static struct bench bench;
static char top[BENCH_FOLDER_BYTES]; /* the folder of everything */
static ID3D12Device9 *device;

/* ---- Values ------------------------------------------------------------------------ */

/* As OpenCLOn12's keys: 16 bytes that are a digest. */
struct name {
	uint64_t words[2];
};

static struct name name_of(uint64_t n)
{
	uint64_t z = n * 0x9e3779b97f4a7c15u;

	return (struct name){ { z ^ z >> 31, n } };
}

static void make_value(uint64_t n, UINT size, unsigned char *value)
{
	memset(value, 'v', size);
	memcpy(value, &n, sizeof(n));
}

static int is_value(uint64_t n, UINT size, const unsigned char *value)
{
	return !memcmp(value, &n, sizeof(n)) && value[size - 1] == 'v';
}

/* ---- The session -------------------------------------------------------------------- */

static D3D12_SHADER_CACHE_SESSION_DESC desc_of(D3D12_SHADER_CACHE_MODE mode)
{
	static uint32_t number; /* each has a cache of its own */

	return (D3D12_SHADER_CACHE_SESSION_DESC){
		.Identifier = { .Data1 = ++number },
		.Mode = mode,
		.MaximumInMemoryCacheSizeBytes = 1u << 28,
		.MaximumInMemoryCacheEntries = 1u << 20,
		.MaximumValueFileSizeBytes = 1u << 30,
		.Version = 1,
	};
}

static ID3D12ShaderCacheSession *open_session(
	const D3D12_SHADER_CACHE_SESSION_DESC *desc)
{
	void *session;

	if (ID3D12Device9_CreateShaderCacheSession(
		    device, desc, &IID_ID3D12ShaderCacheSession, &session))
		bench_fail("no session");
	return session;
}

static void store_values(ID3D12ShaderCacheSession *session, size_t from,
			 size_t to, UINT size)
{
	unsigned char value[VALUE_BYTES];

	for (size_t i = from; i < to; i++) {
		const struct name name = name_of(i);

		make_value(i, size, value);
		if (ID3D12ShaderCacheSession_StoreValue(
			    session, &name, sizeof(name), value, size))
			bench_fail("StoreValue");
	}
}

/* As its callers do: the size, then as many bytes. */
static void find_value(ID3D12ShaderCacheSession *session, size_t i,
		       unsigned char *value, UINT *size)
{
	const struct name name = name_of(i);

	if (ID3D12ShaderCacheSession_FindValue(session, &name, sizeof(name),
					       NULL, size) ||
	    *size > VALUE_BYTES ||
	    ID3D12ShaderCacheSession_FindValue(session, &name, sizeof(name),
					       value, size))
		bench_fail("FindValue");
}

static void find_values(ID3D12ShaderCacheSession *session, size_t from,
			size_t to)
{
	unsigned char value[VALUE_BYTES];
	UINT size;

	for (size_t i = from; i < to; i++) {
		find_value(session, i, value, &size);
		bench_use(value);
	}
}

static void check_session(ID3D12ShaderCacheSession *session, size_t n,
			  UINT size)
{
	unsigned char value[VALUE_BYTES];
	UINT found_size;

	for (size_t i = 0; i < n; i++) {
		find_value(session, i, value, &found_size);
		if (found_size != size || !is_value(i, size, value))
			bench_fail("a session has a wrong value");
	}
}

/* ---- The kiln ------------------------------------------------------------------------ */

static struct kiln *open_kiln(const char *url)
{
	struct kiln_options options;
	struct kiln *kiln;

	kiln_options_init(&options);
	options.memory_bytes_max = 1u << 28;
	options.memory_entries_max = 1u << 20;
	options.memory_order = KILN_MEMORY_INSERTION;
	options.store_url = url;
	options.store_bytes_max = 0;
	options.flags = url ? KILN_OPEN_NO_MEMORY | KILN_OPEN_REFUSE_FULL |
					KILN_OPEN_NO_BUILD_LOCK
			    : 0;
	if (kiln_open(&options, &kiln) || kiln_store_status(kiln) < 0)
		bench_fail("no kiln");
	return kiln;
}

static struct kiln_key **make_keys(size_t n)
{
	struct kiln_key **keys = calloc(n, sizeof(struct kiln_key *));

	for (size_t i = 0; keys && i < n; i++) {
		const struct name name = name_of(i);

		keys[i] = kiln_key_new();
		kiln_key_add(keys[i], LABEL, &name, sizeof(name));
		if (kiln_key_finish(keys[i]))
			bench_fail("no key");
	}
	if (!keys)
		bench_fail("out of memory");
	return keys;
}

static void free_keys(struct kiln_key **keys, size_t n)
{
	for (size_t i = 0; i < n; i++)
		kiln_key_free(keys[i]);
	free(keys);
}

static void put_values(struct kiln *kiln, struct kiln_key **keys, size_t from,
		       size_t to)
{
	unsigned char value[VALUE_BYTES];

	for (size_t i = from; i < to; i++) {
		make_value(i, VALUE_BYTES, value);
		if (kiln_put(kiln, keys[i], value, VALUE_BYTES, NULL, 0))
			bench_fail("kiln_put");
	}
}

static void get_value(struct kiln *kiln, const struct kiln_key *key,
		      unsigned char *value)
{
	struct kiln_blob *blob;

	if (kiln_get(kiln, key, &blob) || kiln_blob_size(blob) != VALUE_BYTES)
		bench_fail("kiln_get");
	memcpy(value, kiln_blob_data(blob), VALUE_BYTES);
	kiln_blob_unref(blob);
}

static void get_values(struct kiln *kiln, struct kiln_key **keys, size_t n)
{
	unsigned char value[VALUE_BYTES];

	for (size_t i = 0; i < n; i++) {
		get_value(kiln, keys[i], value);
		bench_use(value);
	}
}

/* FindValue() is given bytes; so is this. */
static void get_values_by_bytes(struct kiln *kiln, size_t n)
{
	unsigned char value[VALUE_BYTES];

	for (size_t i = 0; i < n; i++) {
		const struct name name = name_of(i);
		struct kiln_key_room room;
		struct kiln_key *key = kiln_key_in(&room);

		kiln_key_add(key, LABEL, &name, sizeof(name));
		if (kiln_key_finish(key))
			bench_fail("no key");
		get_value(kiln, key, value);
		kiln_key_free(key);
		bench_use(value);
	}
}

static void check_kiln(struct kiln *kiln, struct kiln_key **keys, size_t n)
{
	unsigned char value[VALUE_BYTES];

	for (size_t i = 0; i < n; i++) {
		get_value(kiln, keys[i], value);
		if (!is_value(i, VALUE_BYTES, value))
			bench_fail("a kiln has a wrong value");
	}
}

/* ---- Rows ------------------------------------------------------------------------------ */

struct turns {
	double ours[ROUNDS_MAX], theirs[ROUNDS_MAX]; /* ns */
};

static void rows(const struct turns *turns, size_t n_rounds, const char *ours,
		 const char *theirs, double per, const char *unit)
{
	double copy[ROUNDS_MAX];

	memcpy(copy, turns->ours, sizeof(copy));
	bench_row(&bench, ours, bench_median(copy, n_rounds) / per, unit);
	memcpy(copy, turns->theirs, sizeof(copy));
	bench_row(&bench, theirs, bench_median(copy, n_rounds) / per, unit);
}

static double median_ratio(const struct turns *turns, size_t n_rounds)
{
	double ratios[ROUNDS_MAX];

	for (size_t r = 0; r < n_rounds; r++)
		ratios[r] = turns->ours[r] / turns->theirs[r];
	return bench_median(ratios, n_rounds);
}

static void ratio_row(const struct turns *turns, size_t n_rounds,
		      const char *name, double bar, enum bench_better better)
{
	bench_row_bar(&bench, name, median_ratio(turns, n_rounds), "", bar,
		      better);
}

/* ---- Finding ---------------------------------------------------------------------------- */

/* The processor's caches have what is found. */
#define N_FOUND 32

static void find_group(void)
{
	const size_t n_times = bench.quick ? 2 : 300;
	const size_t n_rounds = bench.quick ? 1 : ROUNDS_MAX;
	const D3D12_SHADER_CACHE_SESSION_DESC desc =
		desc_of(D3D12_SHADER_CACHE_MODE_MEMORY);
	ID3D12ShaderCacheSession *session = open_session(&desc);
	struct kiln *kiln = open_kiln(NULL);
	struct kiln_key **keys = make_keys(N_FOUND);
	struct turns turns, by_key;
	uint64_t begin;

	store_values(session, 0, N_FOUND, VALUE_BYTES);
	put_values(kiln, keys, 0, N_FOUND);
	for (size_t r = 0; r < n_rounds; r++) {
		check_session(session, N_FOUND, VALUE_BYTES);
		begin = bench_now_ns();
		for (size_t i = 0; i < n_times; i++)
			find_values(session, 0, N_FOUND);
		turns.ours[r] = by_key.ours[r] =
			(double)(bench_now_ns() - begin);
		check_kiln(kiln, keys, N_FOUND);
		begin = bench_now_ns();
		for (size_t i = 0; i < n_times; i++)
			get_values_by_bytes(kiln, N_FOUND);
		turns.theirs[r] = (double)(bench_now_ns() - begin);
		check_kiln(kiln, keys, N_FOUND);
		begin = bench_now_ns();
		for (size_t i = 0; i < n_times; i++)
			get_values(kiln, keys, N_FOUND);
		by_key.theirs[r] = (double)(bench_now_ns() - begin);
	}
	rows(&turns, n_rounds, "FindValue of 4 KB, its size and its bytes",
	     "kiln_get and copy of 4 KB", (double)(n_times * N_FOUND), "ns");
	bench_row(&bench, "the same of a key that was made before",
		  bench_median(by_key.theirs, n_rounds) /
			  (double)(n_times * N_FOUND),
		  "ns");
	ratio_row(&turns, n_rounds, "FindValue of 4 KB : kiln_get and copy",
		  1.5, BENCH_LOWER);
	free_keys(keys, N_FOUND);
	kiln_close(kiln);
	ID3D12ShaderCacheSession_Release(session);
}

/* ---- Threads ----------------------------------------------------------------------------- */

struct finds {
	ID3D12ShaderCacheSession *session;
	size_t n_times;
	double used_ns[TOGETHER_MAX]; /* of its processor, by each thread */
};

static double thread_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void find_in_a_thread(unsigned thread, void *arg)
{
	struct finds *finds = arg;
	const double begin = thread_ns();

	for (size_t i = 0; i < finds->n_times; i++)
		find_values(finds->session, 0, N_FOUND);
	finds->used_ns[thread] = thread_ns() - begin;
}

/* All find the same values; the throughput of two to that of one, in turn.  A turn takes
   a tenth of a second: new threads share a processor for some milliseconds. */
static void thread_group(void)
{
	enum { TURNS_MAX = 21 };
	const size_t n_turns = bench.quick ? 1 : TURNS_MAX;
	const D3D12_SHADER_CACHE_SESSION_DESC desc =
		desc_of(D3D12_SHADER_CACHE_MODE_MEMORY);
	struct finds finds = { .session = open_session(&desc),
			       .n_times = bench.quick ? 2 : 40000 };
	const struct together together = { .body = find_in_a_thread,
					   .arg = &finds };
	static double ratios[TURNS_MAX], used[TURNS_MAX];
	double one;

	store_values(finds.session, 0, N_FOUND, VALUE_BYTES);
	for (size_t i = 0; i < n_turns; i++) {
		check_session(finds.session, N_FOUND, VALUE_BYTES);
		one = together_run(&together, 1);
		used[i] = finds.used_ns[0];
		check_session(finds.session, N_FOUND, VALUE_BYTES);
		ratios[i] = 2 * one / together_run(&together, 2);
		used[i] *= 4 / (finds.used_ns[0] + finds.used_ns[1]);
	}
	bench_row_bar(&bench,
		      "FindValue of 4 KB, 2 threads : 1 thread (throughput)",
		      bench_median(ratios, n_turns), "", 1.7, BENCH_HIGHER);
	bench_row(&bench, "the same by the time of processors",
		  bench_median(used, n_turns), "");
	ID3D12ShaderCacheSession_Release(finds.session);
}

/* ---- Storing ------------------------------------------------------------------------------ */

static void store_group(void)
{
	const size_t n = bench.quick ? 20 : 300;
	const size_t n_rounds = bench.quick ? 1 : ROUNDS_MAX;
	const D3D12_SHADER_CACHE_SESSION_DESC desc =
		desc_of(D3D12_SHADER_CACHE_MODE_DISK);
	ID3D12ShaderCacheSession *session = open_session(&desc);
	struct kiln_key **keys = make_keys(n * (n_rounds + 1));
	struct turns turns;
	struct kiln *kiln;
	uint64_t begin;
	char url[300];

	snprintf(url, sizeof(url), "log:%s/store", top);
	kiln = open_kiln(url);
	store_values(session, 0, n, VALUE_BYTES);
	put_values(kiln, keys, 0, n);
	for (size_t r = 0; r < n_rounds; r++) {
		const size_t from = n * (r + 1);

		check_session(session, from, VALUE_BYTES);
		begin = bench_now_ns();
		store_values(session, from, from + n, VALUE_BYTES);
		turns.ours[r] = (double)(bench_now_ns() - begin);
		check_kiln(kiln, keys, from);
		begin = bench_now_ns();
		put_values(kiln, keys, from, from + n);
		turns.theirs[r] = (double)(bench_now_ns() - begin);
	}
	rows(&turns, n_rounds, "StoreValue of 4 KB to disk",
	     "store/log, put of 4 KB", 1e3 * (double)n, "us");
	ratio_row(&turns, n_rounds, "StoreValue of 4 KB to disk : store/log",
		  1.2, BENCH_LOWER);
	free_keys(keys, n * (n_rounds + 1));
	kiln_close(kiln);
	ID3D12ShaderCacheSession_Release(session);
}

/* ---- Opening ------------------------------------------------------------------------------- */

#define SMALL_BYTES 64

/* The median of a few. */
static double timed_open(const D3D12_SHADER_CACHE_SESSION_DESC *desc, size_t n)
{
	enum { TIMES = 9 };
	double times[TIMES];

	for (size_t i = 0; i < TIMES; i++) {
		ID3D12ShaderCacheSession *session;
		uint64_t begin = bench_now_ns();

		session = open_session(desc);
		times[i] = (double)(bench_now_ns() - begin);
		check_session(session, n / TIMES, SMALL_BYTES);
		ID3D12ShaderCacheSession_Release(session);
	}
	return bench_median(times, TIMES);
}

static void open_group(void)
{
	const size_t n = bench.quick ? 1000 : 100000;
	const size_t n_rounds = bench.quick ? 1 : ROUNDS_MAX;
	const D3D12_SHADER_CACHE_SESSION_DESC full =
		desc_of(D3D12_SHADER_CACHE_MODE_DISK);
	const D3D12_SHADER_CACHE_SESSION_DESC empty =
		desc_of(D3D12_SHADER_CACHE_MODE_DISK);
	ID3D12ShaderCacheSession *session = open_session(&full);
	struct turns turns;

	store_values(session, 0, n, SMALL_BYTES);
	ID3D12ShaderCacheSession_Release(session);
	session = open_session(&empty);
	ID3D12ShaderCacheSession_Release(session);
	for (size_t r = 0; r < n_rounds; r++) {
		session = open_session(&full);
		check_session(session, n, SMALL_BYTES);
		ID3D12ShaderCacheSession_Release(session);
		turns.ours[r] = timed_open(&full, n / 100);
		turns.theirs[r] = timed_open(&empty, 0);
	}
	rows(&turns, n_rounds, "opening a session, 100k entries",
	     "opening a session, none", 1e3, "us");
	ratio_row(&turns, n_rounds, "opening a session, 100k entries : none",
		  1.5, BENCH_LOWER);
}

/* ---- All of them ---------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} groups[] = {
		{ "find", find_group },
		{ "threads", thread_group },
		{ "store", store_group },
		{ "open", open_group },
	};
	int status;

	bench_begin(&bench, argc, argv, "d3d12");
	bench_make_folder(top, (uint64_t)1 << 29);
	if (setenv("KILN_DIR", top, 1))
		bench_fail("out of memory");
	bench.directory = top;
	if (kiln_d3d12_create_device(NULL, &IID_ID3D12Device9,
				     (void **)&device))
		bench_fail("no device");
	for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++)
		if (bench_wants(&bench, groups[i].name))
			groups[i].run();
	ID3D12Device9_Release(device);
	status = bench_end(&bench);
	bench_remove_tree(top);
	return status;
}
