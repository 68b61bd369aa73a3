/* SPDX-License-Identifier: MIT */

/*
 * Private data and names, as every ID3D12Object has them.  An entry is counted:
 * whoever reads an interface takes a reference on the entry under the lock and
 * one on the interface after it, because methods of others' objects are called
 * without a lock.
 *
 * Setting NULL bytes removes an entry (S_FALSE if there was none); a NULL
 * interface is a value like others.
 */

#include <stdlib.h>

#include "front/d3d12/d3d12.h"

struct entry {
	struct ki_list link;
	_Atomic unsigned refs;
	GUID guid;
	IUnknown *object; /* bytes holds the pointer; NULL: only bytes */
	UINT size;
	_Alignas(8) unsigned char bytes[];
};

static struct entry *new_entry(const GUID *guid, const void *bytes, UINT size)
{
	struct entry *entry = malloc(sizeof(*entry) + size);

	if (!entry)
		return NULL;
	ki_list_init(&entry->link);
	atomic_init(&entry->refs, 1);
	entry->guid = *guid;
	entry->object = NULL;
	entry->size = size;
	if (size)
		memcpy(entry->bytes, bytes, size);
	return entry;
}

/* NULL is fine. */
static void unref_entry(struct entry *entry)
{
	if (!entry || atomic_fetch_sub(&entry->refs, 1) != 1)
		return;
	if (entry->object)
		entry->object->lpVtbl->Release(entry->object);
	free(entry);
}

static struct entry *find_locked(struct ki_d3d12_data *data, const GUID *guid)
	KI_REQUIRES(&data->mutex)
{
	struct ki_list *link;

	ki_list_for_each (link, &data->entries) {
		struct entry *entry = ki_container(link, struct entry, link);

		if (ki_d3d12_is_guid(&entry->guid, guid))
			return entry;
	}
	return NULL;
}

/* Put an entry in the place of another, or nothing.  What was there is the
   caller's. */
static struct entry *exchange(struct ki_d3d12_data *data, const GUID *guid,
			      struct entry *entry)
{
	struct entry *old;

	ki_mutex_lock(&data->mutex);
	old = find_locked(data, guid);
	if (old)
		ki_list_remove(&old->link);
	if (entry)
		ki_list_append(&data->entries, &entry->link);
	ki_mutex_unlock(&data->mutex);
	return old;
}

void ki_d3d12_data_init(struct ki_d3d12_data *data)
{
	ki_mutex_init(&data->mutex, KI_RANK_FRONT);
	ki_list_init(&data->entries);
}

void ki_d3d12_data_fini(struct ki_d3d12_data *data)
{
	struct ki_list *link, *after;

	ki_list_for_each_safe (link, after, &data->entries) {
		ki_list_remove(link);
		unref_entry(ki_container(link, struct entry, link));
	}
	ki_mutex_fini(&data->mutex);
}

HRESULT ki_d3d12_data_get(struct ki_d3d12_data *data, const GUID *guid,
			  UINT *inout_size, void *out)
{
	struct entry *entry;
	UINT room;

	if (!guid || !inout_size)
		return E_INVALIDARG;
	ki_mutex_lock(&data->mutex);
	entry = find_locked(data, guid);
	if (entry)
		atomic_fetch_add(&entry->refs, 1);
	ki_mutex_unlock(&data->mutex);
	room = *inout_size;
	*inout_size = entry ? entry->size : 0;
	if (!entry)
		return DXGI_ERROR_NOT_FOUND;
	if (out && room < entry->size) {
		unref_entry(entry);
		return DXGI_ERROR_MORE_DATA;
	}
	if (out) {
		if (entry->object)
			entry->object->lpVtbl->AddRef(entry->object);
		memcpy(out, entry->bytes, entry->size);
	}
	unref_entry(entry);
	return S_OK;
}

HRESULT ki_d3d12_data_set(struct ki_d3d12_data *data, const GUID *guid,
			  UINT size, const void *bytes)
{
	struct entry *entry = NULL, *old;

	if (!guid)
		return E_INVALIDARG;
	if (bytes) {
		entry = new_entry(guid, bytes, size);
		if (!entry)
			return E_OUTOFMEMORY;
	}
	old = exchange(data, guid, entry);
	unref_entry(old);
	return entry || old ? S_OK : S_FALSE;
}

HRESULT ki_d3d12_data_set_interface(struct ki_d3d12_data *data,
				    const GUID *guid, const IUnknown *object)
{
	struct entry *entry;

	if (!guid)
		return E_INVALIDARG;
	entry = new_entry(guid, &object, sizeof(object));
	if (!entry)
		return E_OUTOFMEMORY;
	entry->object = (IUnknown *)object;
	if (object)
		entry->object->lpVtbl->AddRef(entry->object);
	unref_entry(exchange(data, guid, entry));
	return S_OK;
}

HRESULT ki_d3d12_data_set_name(struct ki_d3d12_data *data, LPCWSTR name)
{
	if (!name)
		return E_INVALIDARG;
	return ki_d3d12_data_set(data, &WKPDID_D3DDebugObjectNameW,
				 (UINT)(wcslen(name) * sizeof(*name)), name);
}
