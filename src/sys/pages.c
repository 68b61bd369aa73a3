/* SPDX-License-Identifier: MIT */

#include "sys/sys.h"

#include <stdint.h>
#include <sys/mman.h>

static size_t in_pages(size_t size)
{
	return ki_in_pages(size, ki_sys_posix.page_bytes(&ki_sys_posix));
}

/* More is mapped than is wanted; what lies before and behind goes back. */
void *ki_pages_new(size_t size)
{
	size_t wanted = in_pages(size), mapped = wanted + KI_PAGES_HUGE;
	size_t before, behind;
	char *at = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	before = -(uintptr_t)at & (KI_PAGES_HUGE - 1);
	behind = mapped - wanted - before;
	if (before)
		munmap(at, before);
	at += before;
	if (behind)
		munmap(at + wanted, behind);
	(void)madvise(at, wanted, MADV_HUGEPAGE);
	return at;
}

void ki_pages_free(void *pages, size_t size)
{
	if (pages)
		munmap(pages, in_pages(size));
}
