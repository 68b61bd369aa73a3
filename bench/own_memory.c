/* SPDX-License-Identifier: MIT */

/*
 * Libc's own functions stay within reach under other names: malloc() as
 * __libc_malloc(), the rest through dlsym().  Nothing here may allocate while
 * it counts, so the tables are fixed, and full ones end the program.
 */

#include "own_memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCKS_BITS  18
#define BLOCKS_MAX   ((size_t)1 << BLOCKS_BITS)
#define SITES_MAX    4096
#define FRAMES_MAX   16
#define HEADER_BYTES sizeof(size_t) /* of malloc()'s, before a block */
#define SITES_SHOWN  40

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *block);

struct range {
	uintptr_t begin, end; /* equal: not loaded yet */
};

struct block {
	const void *address; /* NULL: free */
	uintptr_t site;
	size_t size;
};

struct site {
	uintptr_t place;
	size_t bytes, n;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const char *library_name; /* NULL: not counting */
static struct range library, libc;
static struct block blocks[BLOCKS_MAX];
static struct own_memory now;
static __thread int is_counting; /* this thread: leave it alone */

/* ---- Whose call it is ---------------------------------------------------- */

static int find(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *slash = strrchr(info->dlpi_name, '/');
	const char *name = slash ? slash + 1 : info->dlpi_name;
	struct range *range = NULL;
	ElfW(Half) i;

	if (!strcmp(name, library_name))
		range = &library;
	else if (!strcmp(name, "libc.so.6"))
		range = &libc;
	for (i = 0; range && i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + part->p_vaddr;

		if (part->p_type != PT_LOAD)
			continue;
		if (!range->begin || at < range->begin)
			range->begin = at;
		if (at + part->p_memsz > range->end)
			range->end = at + part->p_memsz;
	}
	return 0;
}

static int is_in(const struct range *range, uintptr_t place)
{
	return place >= range->begin && place < range->end;
}

/* Where in the library the call came from, or 0. */
static uintptr_t site_of(void *return_address)
{
	uintptr_t place = (uintptr_t)return_address;
	void *frames[FRAMES_MAX];
	int n, i;

	if (!library_name || is_counting)
		return 0;
	is_counting = 1;
	if (!library.end)
		(void)dl_iterate_phdr(find, NULL);
	if (library.end && is_in(&libc, place)) {
		n = backtrace(frames, FRAMES_MAX);
		/* This function, ours in libc's place, then libc's frames. */
		for (i = 2; i < n && is_in(&libc, (uintptr_t)frames[i]); i++)
			;
		place = i < n ? (uintptr_t)frames[i] : 0;
	}
	is_counting = 0;
	return is_in(&library, place) ? place : 0;
}

/* ---- Counting ------------------------------------------------------------ */

static void note_peak(void)
{
	size_t sum = now.blocks + now.mapped + now.stacks;

	if (sum > now.peak)
		now.peak = sum;
}

static struct block *place_of(const void *address)
{
	size_t i = ((uintptr_t)address >> 4) * 0x9e3779b97f4a7c15u >>
		   (64 - BLOCKS_BITS);

	while (blocks[i].address && blocks[i].address != address)
		i = (i + 1) % BLOCKS_MAX;
	return &blocks[i];
}

/* Empty a place; those behind it may have stood there but for it. */
static void clear(struct block *block)
{
	size_t i = (size_t)(block - blocks);

	for (block->address = NULL; blocks[i = (i + 1) % BLOCKS_MAX].address;) {
		struct block moved = blocks[i];

		blocks[i].address = NULL;
		*place_of(moved.address) = moved;
	}
}

static void add(void *address, size_t size, uintptr_t site, size_t *sum)
{
	struct block *block;

	if (!address || !site)
		return;
	pthread_mutex_lock(&mutex);
	block = place_of(address);
	if (now.n_blocks == BLOCKS_MAX / 2)
		abort();
	*block = (struct block){ address, site, size };
	*sum += size;
	now.n_blocks++;
	note_peak();
	pthread_mutex_unlock(&mutex);
}

static void take(const void *address, size_t *sum)
{
	struct block *block;

	if (!address || !library_name)
		return;
	pthread_mutex_lock(&mutex);
	block = place_of(address);
	if (block->address) {
		*sum -= block->size;
		now.n_blocks--;
		clear(block);
	}
	pthread_mutex_unlock(&mutex);
}

static void *counted(void *block, void *return_address)
{
	uintptr_t site = site_of(return_address);

	if (block && site)
		add(block, malloc_usable_size(block) + HEADER_BYTES, site,
		    &now.blocks);
	return block;
}

void own_memory_begin(const char *name)
{
	void *frames[1];

	(void)backtrace(frames, 1); /* the first time it loads a library */
	library_name = name;
}

void own_memory_read(struct own_memory *out_memory)
{
	pthread_mutex_lock(&mutex);
	*out_memory = now;
	pthread_mutex_unlock(&mutex);
}

static int by_bytes(const void *a, const void *b)
{
	size_t first = ((const struct site *)a)->bytes;
	size_t second = ((const struct site *)b)->bytes;

	return (first < second) - (first > second);
}

void own_memory_print_sites(void)
{
	static struct site sites[SITES_MAX];
	size_t n = 0, i, j;

	pthread_mutex_lock(&mutex);
	for (i = 0; i < BLOCKS_MAX; i++) {
		if (!blocks[i].address)
			continue;
		for (j = 0; j < n && sites[j].place != blocks[i].site; j++)
			;
		if (j == SITES_MAX)
			continue;
		n += j == n;
		sites[j].place = blocks[i].site;
		sites[j].bytes += blocks[i].size;
		sites[j].n++;
	}
	pthread_mutex_unlock(&mutex);
	qsort(sites, n, sizeof(*sites), by_bytes);
	for (i = 0; i < n && i < SITES_SHOWN; i++)
		fprintf(stderr, "%zu %zu 0x%zx\n", sites[i].bytes, sites[i].n,
			(size_t)(sites[i].place - 1 - library.begin));
}

/* ---- In libc's place ----------------------------------------------------- */

#pragma GCC visibility push(default)

void *malloc(size_t size)
{
	return counted(__libc_malloc(size), __builtin_return_address(0));
}

void *calloc(size_t n, size_t size)
{
	return counted(__libc_calloc(n, size), __builtin_return_address(0));
}

void *realloc(void *block, size_t size)
{
	void *moved;

	/* Forgotten first: once it is free another thread may be given it. */
	take(block, &now.blocks);
	moved = __libc_realloc(block, size);
	return counted(moved, __builtin_return_address(0));
}

void *memalign(size_t alignment, size_t size)
{
	return counted(__libc_memalign(alignment, size),
		       __builtin_return_address(0));
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return counted(__libc_memalign(alignment, size),
		       __builtin_return_address(0));
}

int posix_memalign(void **out_block, size_t alignment, size_t size)
{
	void *block = __libc_memalign(alignment, size);

	if (!block)
		return ENOMEM;
	*out_block = counted(block, __builtin_return_address(0));
	return 0;
}

void free(void *block)
{
	take(block, &now.blocks);
	__libc_free(block);
}

static size_t in_pages(size_t size)
{
	return (size + 4095) & ~(size_t)4095;
}

typedef void *mmap_fn(void *address, size_t size, int protection, int flags,
		      int fd, off_t offset);

static void *map(const char *name, void *return_address, void *address,
		 size_t size, int protection, int flags, int fd, off_t offset)
{
	uintptr_t site = site_of(return_address);
	mmap_fn *next;
	void *mapped;

	*(void **)&next = dlsym(RTLD_NEXT, name);
	mapped = next(address, size, protection, flags, fd, offset);
	if (mapped != MAP_FAILED)
		add(mapped, in_pages(size), site, &now.mapped);
	return mapped;
}

/* Files are compiled to call the one or the other. */
mmap_fn map_32 __asm__("mmap");
mmap_fn map_64 __asm__("mmap64");

void *map_32(void *address, size_t size, int protection, int flags, int fd,
	     off_t offset)
{
	return map("mmap", __builtin_return_address(0), address, size,
		   protection, flags, fd, offset);
}

void *map_64(void *address, size_t size, int protection, int flags, int fd,
	     off_t offset)
{
	return map("mmap64", __builtin_return_address(0), address, size,
		   protection, flags, fd, offset);
}

/* Nothing that is counted unmaps a part. */
int munmap(void *address, size_t size)
{
	int (*next)(void *, size_t);

	*(void **)&next = dlsym(RTLD_NEXT, "munmap");
	take(address, &now.mapped);
	return next(address, size);
}

/* A thread of the library's keeps its stack: it is for good. */
int pthread_create(pthread_t *thread, const pthread_attr_t *given,
		   void *(*run)(void *), void *arg)
{
	int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
		    void *);
	uintptr_t site = site_of(__builtin_return_address(0));
	pthread_attr_t attributes;
	size_t size = 0;

	*(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
	if (site) {
		if (given) {
			(void)pthread_attr_getstacksize(given, &size);
		} else {
			pthread_attr_init(&attributes);
			(void)pthread_attr_getstacksize(&attributes, &size);
			pthread_attr_destroy(&attributes);
		}
		pthread_mutex_lock(&mutex);
		now.stacks += size;
		note_peak();
		pthread_mutex_unlock(&mutex);
	}
	return next(thread, given, run, arg);
}

#pragma GCC visibility pop
