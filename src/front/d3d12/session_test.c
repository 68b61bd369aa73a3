/* SPDX-License-Identifier: MIT */

/*
 * Sessions as Windows has them: what is known to hold there, in the order in
 * which it was asserted there, and then what only memory shows.
 */

#include "harness/harness.h"

#include <stdio.h>
#include <stdlib.h>

#define COBJMACROS
#include "front/d3d12/d3d12.h"

#define UNTOUCHED ((void *)(uintptr_t)0xdeadbeef)
#define KB	  1024u

static const GUID cache_guid = {
	0x17cb474e, 0x4c55, 0x4dbc, { 0xbc, 0x2e, 1, 2, 3, 4, 5, 6 }
};

static ID3D12Device9 *device;

static int make_device(void **state)
{
	return kiln_d3d12_create_device(NULL, &IID_ID3D12Device9,
					(void **)&device) != S_OK;
}

static int drop_device(void **state)
{
	return ID3D12Device9_Release(device) != 0;
}

static ULONG refs_of(void *object)
{
	IUnknown *unknown = object;

	IUnknown_AddRef(unknown);
	return IUnknown_Release(unknown);
}

static D3D12_SHADER_CACHE_SESSION_DESC memory_desc(void)
{
	return (D3D12_SHADER_CACHE_SESSION_DESC){ .Identifier = cache_guid };
}

static HRESULT create(const D3D12_SHADER_CACHE_SESSION_DESC *desc, REFIID riid,
		      void **out)
{
	return ID3D12Device9_CreateShaderCacheSession(device, desc, riid, out);
}

static ID3D12ShaderCacheSession *open_session(
	const D3D12_SHADER_CACHE_SESSION_DESC *desc)
{
	ID3D12ShaderCacheSession *session = NULL;

	assert_int_equal(
		create(desc, &IID_ID3D12ShaderCacheSession, (void **)&session),
		S_OK);
	assert_non_null(session);
	return session;
}

/* ---- 1 to 16: arguments, and what GetDesc() makes of them -------------------- */

enum given { ALL = 0, NO_DESC = 1, NO_ID = 2, NO_IID = 4, NO_OUT = 8 };

struct creation {
	const char *name;
	unsigned without; /* of enum given */
	UINT mode, flags, memory_bytes, file_bytes;
	HRESULT result;
	UINT memory_bytes_told, file_bytes_told;
};

/* 7, a session for no interface, crashes there: here it is E_INVALIDARG. */
static const struct creation creations[] = {
	{ .name = "1_no_description",
	  .without = NO_DESC,
	  .result = E_INVALIDARG },
	{ .name = "2_no_description_and_no_out",
	  .without = NO_DESC | NO_OUT,
	  .result = E_INVALIDARG },
	{ .name = "3_no_identifier", .without = NO_ID, .result = E_INVALIDARG },
	{ .name = "4_no_identifier_and_no_out",
	  .without = NO_ID | NO_OUT,
	  .result = E_INVALIDARG },
	{ .name = "5_no_identifier_and_no_interface",
	  .without = NO_ID | NO_IID,
	  .result = E_INVALIDARG },
	{ .name = "7_no_interface", .without = NO_IID, .result = E_INVALIDARG },
	{ .name = "8_no_out", .without = NO_OUT, .result = S_FALSE },
	{ .name = "9_no_interface_and_no_out",
	  .without = NO_IID | NO_OUT,
	  .result = S_FALSE },
	{ .name = "10_no_limits_are_defaults",
	  .memory_bytes_told = 1048576,
	  .file_bytes_told = 134217728 },
	{ .name = "11_as_much_memory_as_can_be_said",
	  .memory_bytes = UINT32_MAX,
	  .memory_bytes_told = UINT32_MAX,
	  .file_bytes_told = 134217728 },
	{ .name = "12_a_value_file_of_1_gib",
	  .file_bytes = 1u << 30,
	  .memory_bytes_told = 1048576,
	  .file_bytes_told = 1u << 30 },
	{ .name = "13_a_value_file_of_more",
	  .file_bytes = (1u << 30) + 1,
	  .result = E_INVALIDARG },
	{ .name = "14_limits_of_1",
	  .memory_bytes = 1,
	  .file_bytes = 1,
	  .memory_bytes_told = 1,
	  .file_bytes_told = 1 },
	{ .name = "15_unknown_flags",
	  .flags = 0x1245670,
	  .result = E_INVALIDARG },
	{ .name = "16_unknown_mode", .mode = 9876, .result = E_INVALIDARG },
	{ .name = "16_the_first_unknown_mode",
	  .mode = 2,
	  .result = E_INVALIDARG },
};

static void check_desc(ID3D12ShaderCacheSession *session,
		       const struct creation *row)
{
	D3D12_SHADER_CACHE_SESSION_DESC told =
		ID3D12ShaderCacheSession_GetDesc(session);

	assert_memory_equal(&told.Identifier, &cache_guid, sizeof(GUID));
	assert_int_equal(told.Mode, row->mode);
	assert_int_equal(told.Flags, row->flags);
	assert_int_equal(told.MaximumInMemoryCacheSizeBytes,
			 row->memory_bytes_told);
	assert_int_equal(told.MaximumInMemoryCacheEntries, 128);
	assert_int_equal(told.MaximumValueFileSizeBytes, row->file_bytes_told);
	assert_int_equal(told.Version, 0);
}

static void check_creation(void **state)
{
	const struct creation *row = *state;
	D3D12_SHADER_CACHE_SESSION_DESC desc = memory_desc();
	void *out = UNTOUCHED;

	if (row->without & NO_ID)
		memset(&desc.Identifier, 0, sizeof(desc.Identifier));
	desc.Mode = (D3D12_SHADER_CACHE_MODE)row->mode;
	desc.Flags = (D3D12_SHADER_CACHE_FLAGS)row->flags;
	desc.MaximumInMemoryCacheSizeBytes = row->memory_bytes;
	desc.MaximumValueFileSizeBytes = row->file_bytes;
	assert_int_equal(create(row->without & NO_DESC ? NULL : &desc,
				row->without & NO_IID
					? NULL
					: &IID_ID3D12ShaderCacheSession,
				row->without & NO_OUT ? NULL : &out),
			 row->result);
	if (row->result != S_OK) {
		/* 6 */
		assert_ptr_equal(out, UNTOUCHED);
		return;
	}
	check_desc(out, row);
	assert_int_equal(ID3D12ShaderCacheSession_Release(
				 (ID3D12ShaderCacheSession *)out),
			 0);
}

/* ---- 17 to 24: one object, one count -------------------------------------------- */

static void references_are_counted_once_for_both_faces(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = memory_desc();
	ULONG before = refs_of(device);
	ID3D12ShaderCacheSession *session;
	IUnknown *unknown, *again;

	/* 17 */
	assert_int_equal(create(&desc, &IID_IUnknown, (void **)&unknown), S_OK);
	assert_int_equal(refs_of(device), before + 1);
	assert_int_equal(refs_of(unknown), 1);
	/* 18 */
	assert_int_equal(IUnknown_QueryInterface(unknown,
						 &IID_ID3D12ShaderCacheSession,
						 (void **)&session),
			 S_OK);
	assert_ptr_not_equal(session, unknown);
	assert_int_equal(ID3D12ShaderCacheSession_QueryInterface(
				 session, &IID_IUnknown, (void **)&again),
			 S_OK);
	assert_ptr_equal(again, unknown);
	/* 19 */
	assert_int_equal(ID3D12ShaderCacheSession_QueryInterface(
				 session, &IID_IUnknown, NULL),
			 E_POINTER);
	/* 20 */
	assert_int_equal(refs_of(unknown), 3);
	assert_int_equal(refs_of(session), 3);
	assert_int_equal(IUnknown_Release(again), 2);
	assert_int_equal(IUnknown_Release(unknown), 1);
	/* 23 */
	assert_int_equal(refs_of(device), before + 1);
	assert_int_equal(ID3D12ShaderCacheSession_Release(session), 0);
	assert_int_equal(refs_of(device), before);
}

/* 21, 22 */
static void another_version_is_refused_while_a_session_is_open(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = memory_desc();
	ID3D12ShaderCacheSession *session = open_session(&desc);
	void *out = UNTOUCHED;

	desc.Version = 1;
	assert_int_equal(create(&desc, &IID_ID3D12ShaderCacheSession, &out),
			 DXGI_ERROR_ALREADY_EXISTS);
	assert_null(out);
	assert_int_equal(create(&desc, &IID_ID3D12ShaderCacheSession, NULL),
			 S_FALSE);
	assert_int_equal(ID3D12ShaderCacheSession_Release(session), 0);
	session = open_session(&desc);
	assert_int_equal(ID3D12ShaderCacheSession_Release(session), 0);
}

/* ---- 24 to 36: values ---------------------------------------------------------- */

#define N_SESSIONS   2
#define BUFFER_BYTES (64 * KB)

struct span {
	const void *data;
	UINT size;
};

static unsigned char big[64 * KB], other_big[64 * KB];

#define SPAN(data, size)                                                       \
	{                                                                      \
		data, size                                                     \
	}
static const struct span key1 = SPAN("\x12\x34\x56\x78", 4);
static const struct span key2 = SPAN("\x12\x34\x56\x79", 4);
static const struct span key_big = SPAN(big, 20 * KB);
static const struct span value1 = SPAN("first", 5);
static const struct span value2 = SPAN("second value", 12);
static const struct span value_48 = SPAN(other_big, 48);
static const struct span value_20k = SPAN(big, 20 * KB);
static const struct span other_20k = SPAN(other_big, 20 * KB);
static const struct span value_40k = SPAN(other_big, 40 * KB);

enum op { OPEN_SMALL, OPEN_DEFAULT, CLOSE, STORE, FIND };

/* How a value is asked for. */
enum asked { INTO_BUFFER, FOR_SIZE, WITHOUT_SIZE, BLINDLY };

struct step {
	const char *name;
	enum op op;
	unsigned session;
	const struct span *key;	  /* NULL: none */
	const struct span *value; /* to be stored, or found; NULL: none */
	HRESULT result;
	enum asked asked;
	UINT room;     /* 0: all of the buffer */
	UINT key_size; /* 0: all of it; NOTHING */
	UINT size;     /* of what is stored, the same */
};
#define NOTHING UINT32_MAX

static const struct step steps[] = {
	{ "24_a_session", OPEN_DEFAULT, 0 },
	{ "24_another_of_the_same", OPEN_DEFAULT, 1 },
	{ "25_a_first_value", STORE, 0, &key1, &value1 },
	{ "25_the_same_again", STORE, 0, &key1, &value1,
	  DXGI_ERROR_ALREADY_EXISTS },
	{ "25_another_for_its_key", STORE, 0, &key1, &value2,
	  DXGI_ERROR_ALREADY_EXISTS },
	{ "25_the_first_is_found", FIND, 0, &key1, &value1 },
	{ "27_from_the_other_session", FIND, 1, &key1, &value1 },
	{ "27_twice", FIND, 1, &key1, &value1 },
	{ "26_one_of_two_is_released", CLOSE, 0 },
	{ "26_it_is_still_there", FIND, 1, &key1, &value1 },
	{ "26_the_last_is_released", CLOSE, 1 },
	{ "26_a_new_one", OPEN_DEFAULT, 0 },
	{ "26_nothing_is_there", FIND, 0, &key1, NULL, DXGI_ERROR_NOT_FOUND },
	{ "26_it_can_be_stored_again", STORE, 0, &key1, &value2 },
	{ "26_and_found", FIND, 0, &key1, &value2 },
	{ "28_no_value_and_no_size", FIND, 0, &key1, NULL, E_INVALIDARG,
	  BLINDLY },
	{ "28_a_buffer_and_no_size", FIND, 0, &key1, NULL, E_INVALIDARG,
	  WITHOUT_SIZE },
	{ "28_a_missing_key_no_value_and_no_size", FIND, 0, &key2, NULL,
	  E_INVALIDARG, BLINDLY },
	{ "28_a_missing_key_a_buffer_and_no_size", FIND, 0, &key2, NULL,
	  E_INVALIDARG, WITHOUT_SIZE },
	{ "29_the_size_alone", FIND, 0, &key1, &value2, S_OK, FOR_SIZE,
	  NOTHING },
	{ "29_the_size_alone_of_something_larger", FIND, 0, &key1, &value2,
	  S_OK, FOR_SIZE, 1000 },
	{ "30_a_missing_key", FIND, 0, &key2, NULL, DXGI_ERROR_NOT_FOUND },
	{ "30_the_size_of_a_missing_key", FIND, 0, &key2, NULL,
	  DXGI_ERROR_NOT_FOUND, FOR_SIZE },
	{ "31_a_buffer_that_is_too_small", FIND, 0, &key1, &value2,
	  DXGI_ERROR_MORE_DATA, INTO_BUFFER, 11 },
	{ "31_a_buffer_of_no_bytes", FIND, 0, &key1, &value2,
	  DXGI_ERROR_MORE_DATA, INTO_BUFFER, NOTHING },
	{ "31_a_buffer_that_just_fits", FIND, 0, &key1, &value2, S_OK,
	  INTO_BUFFER, 12 },
	{ "34_a_key_is_not_cut", FIND, 0, &key1, NULL, DXGI_ERROR_NOT_FOUND,
	  INTO_BUFFER, 0, 3 },
	{ "the_end_of_large_limits", CLOSE, 0 },

	{ "32_32_kib_of_memory", OPEN_SMALL, 0 },
	{ "32_a_value_of_20_kib", STORE, 0, &key1, &value_20k },
	{ "32_another_of_20_kib", STORE, 0, &key2, &other_20k },
	{ "32_the_second_is_found", FIND, 0, &key2, &other_20k },
	{ "32_the_first_is_not", FIND, 0, &key1, NULL, DXGI_ERROR_NOT_FOUND },
	{ "33_a_key_of_20_kib", STORE, 0, &key_big, &value_48 },
	{ "33_is_found", FIND, 0, &key_big, &value_48 },
	{ "33_its_bytes_count", FIND, 0, &key2, NULL, DXGI_ERROR_NOT_FOUND },
	{ "34_its_last_byte_counts", FIND, 0, &key_big, NULL,
	  DXGI_ERROR_NOT_FOUND, INTO_BUFFER, 0, 20 * KB - 1 },
	{ "35_a_value_larger_than_memory", STORE, 0, &key1, &value_40k },
	{ "35_is_found", FIND, 0, &key1, &value_40k },
	{ "35_the_next", STORE, 0, &key2, &value1 },
	{ "35_makes_it_go", FIND, 0, &key1, NULL, DXGI_ERROR_NOT_FOUND },
	{ "35_and_is_found", FIND, 0, &key2, &value1 },

	{ "36_no_value_of_no_size", STORE, 0, &key1, NULL, E_INVALIDARG, 0, 0,
	  0, NOTHING },
	{ "36_no_value_of_some_size", STORE, 0, &key1, NULL, E_INVALIDARG, 0, 0,
	  0, 5 },
	{ "36_a_value_of_no_size", STORE, 0, &key1, &value1, E_INVALIDARG, 0, 0,
	  0, NOTHING },
	{ "36_no_key", STORE, 0, NULL, &value1, E_INVALIDARG, 0, 0, 4 },
	{ "36_no_key_of_no_size", STORE, 0, NULL, &value1, E_INVALIDARG, 0, 0,
	  NOTHING },
	{ "36_a_key_of_no_size", STORE, 0, &key1, &value1, E_INVALIDARG, 0, 0,
	  NOTHING },
	{ "finding_without_a_key", FIND, 0, NULL, NULL, E_INVALIDARG, 0, 0, 4 },
	{ "finding_a_key_of_no_size", FIND, 0, &key1, NULL, E_INVALIDARG, 0, 0,
	  NOTHING },
	{ "the_end", CLOSE, 0 },
};

static UINT size_of(UINT said, const struct span *span)
{
	if (said == NOTHING)
		return 0;
	return said || !span ? said : span->size;
}

static void open_for(ID3D12ShaderCacheSession **out, int is_small)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = memory_desc();

	if (is_small)
		desc.MaximumInMemoryCacheSizeBytes = 32 * KB;
	*out = open_session(&desc);
}

static HRESULT store(ID3D12ShaderCacheSession *session, const struct step *step)
{
	return ID3D12ShaderCacheSession_StoreValue(
		session, step->key ? step->key->data : NULL,
		size_of(step->key_size, step->key),
		step->value ? step->value->data : NULL,
		size_of(step->size, step->value));
}

/* What is not promised to be written must be as it was. */
static HRESULT find(ID3D12ShaderCacheSession *session, const struct step *step)
{
	static unsigned char buffer[BUFFER_BYTES], before[BUFFER_BYTES];
	UINT room = step->room == NOTHING ? 0
		    : step->room	  ? step->room
					  : BUFFER_BYTES;
	UINT size = room, told, copied;
	HRESULT result;

	memset(buffer, 0x5a, sizeof(buffer));
	memcpy(before, buffer, sizeof(buffer));
	result = ID3D12ShaderCacheSession_FindValue(
		session, step->key ? step->key->data : NULL,
		size_of(step->key_size, step->key),
		step->asked == FOR_SIZE || step->asked == BLINDLY ? NULL
								  : buffer,
		step->asked == WITHOUT_SIZE || step->asked == BLINDLY ? NULL
								      : &size);
	told = step->value ? step->value->size : room;
	assert_int_equal(size, told);
	copied = result == S_OK && step->asked == INTO_BUFFER ? told : 0;
	if (copied)
		assert_memory_equal(buffer, step->value->data, copied);
	assert_memory_equal(buffer + copied, before + copied,
			    sizeof(buffer) - copied);
	return result;
}

static ID3D12ShaderCacheSession *sessions[N_SESSIONS];

/* Rows go on from where the one before them ended. */
static void take_step(void **state)
{
	const struct step *step = *state;
	ID3D12ShaderCacheSession **session = &sessions[step->session];
	HRESULT result = S_OK;

	switch (step->op) {
	case OPEN_SMALL:
	case OPEN_DEFAULT:
		open_for(session, step->op == OPEN_SMALL);
		assert_true(!sessions[1] || sessions[0] != sessions[1]);
		break;
	case CLOSE:
		assert_int_equal(ID3D12ShaderCacheSession_Release(*session), 0);
		*session = NULL;
		break;
	case STORE:
		result = store(*session, step);
		break;
	case FIND:
		result = find(*session, step);
		break;
	}
	assert_int_equal(result, step->result);
}

/* ---- Beyond that ------------------------------------------------------------------ */

static void an_unknown_interface_is_told(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = memory_desc();
	ULONG before = refs_of(device);
	void *out = UNTOUCHED;

	assert_int_equal(create(&desc, &IID_ID3D12Device, &out), E_NOINTERFACE);
	assert_null(out);
	assert_int_equal(refs_of(device), before);
}

static void a_session_is_a_child_of_its_device(void **state)
{
	static const IID *const faces[] = { &IID_ID3D12ShaderCacheSession,
					    &IID_ID3D12DeviceChild,
					    &IID_ID3D12Object };
	D3D12_SHADER_CACHE_SESSION_DESC desc = memory_desc();
	ID3D12ShaderCacheSession *session = open_session(&desc);
	void *out;

	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(ID3D12ShaderCacheSession_QueryInterface(
					 session, faces[i], &out),
				 S_OK);
		assert_ptr_equal(out, session);
		assert_int_equal(ID3D12ShaderCacheSession_Release(session), 1);
	}
	assert_int_equal(ID3D12ShaderCacheSession_GetDevice(
				 session, &IID_ID3D12Device, &out),
			 S_OK);
	assert_ptr_equal(out, device);
	assert_int_equal(ID3D12Device9_Release(device), 2);
	assert_int_equal(ID3D12ShaderCacheSession_GetDevice(
				 session, &IID_ID3D12ShaderCacheSession, &out),
			 E_NOINTERFACE);
	assert_null(out);
	assert_int_equal(ID3D12ShaderCacheSession_Release(session), 0);
}

/* The first one's limits hold, and everybody is told his own. */
static void each_session_tells_its_own_limits(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = memory_desc(), told;
	ID3D12ShaderCacheSession *first, *second;
	UINT size = 0;

	desc.MaximumInMemoryCacheEntries = 1;
	first = open_session(&desc);
	desc.MaximumInMemoryCacheEntries = 0;
	desc.MaximumInMemoryCacheSizeBytes = 77;
	second = open_session(&desc);
	told = ID3D12ShaderCacheSession_GetDesc(first);
	assert_int_equal(told.MaximumInMemoryCacheEntries, 1);
	told = ID3D12ShaderCacheSession_GetDesc(second);
	assert_int_equal(told.MaximumInMemoryCacheEntries, 128);
	assert_int_equal(told.MaximumInMemoryCacheSizeBytes, 77);
	assert_int_equal(
		ID3D12ShaderCacheSession_StoreValue(second, "a", 1, big, 1000),
		S_OK);
	assert_int_equal(
		ID3D12ShaderCacheSession_StoreValue(second, "b", 1, big, 1000),
		S_OK);
	assert_int_equal(
		ID3D12ShaderCacheSession_FindValue(second, "b", 1, NULL, &size),
		S_OK);
	assert_int_equal(
		ID3D12ShaderCacheSession_FindValue(second, "a", 1, NULL, &size),
		DXGI_ERROR_NOT_FOUND);
	assert_int_equal(ID3D12ShaderCacheSession_Release(first), 0);
	/* What GetDesc() says can be used to create anew. */
	first = open_session(&told);
	assert_int_equal(ID3D12ShaderCacheSession_Release(first), 0);
	assert_int_equal(ID3D12ShaderCacheSession_Release(second), 0);
}

/* S58: asked for its size, evicted, and whole all the same. */
static void a_value_that_goes_between_two_calls_is_whole(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = memory_desc();
	ID3D12ShaderCacheSession *session;
	char value[8] = "";
	UINT size = 0;

	desc.MaximumInMemoryCacheEntries = 1;
	session = open_session(&desc);
	assert_int_equal(
		ID3D12ShaderCacheSession_StoreValue(session, "a", 1, "old", 4),
		S_OK);
	assert_int_equal(ID3D12ShaderCacheSession_FindValue(session, "a", 1,
							    NULL, &size),
			 S_OK);
	assert_int_equal(size, 4);
	assert_int_equal(
		ID3D12ShaderCacheSession_StoreValue(session, "b", 1, "new", 4),
		S_OK);
	assert_int_equal(ID3D12ShaderCacheSession_FindValue(session, "a", 1,
							    value, &size),
			 S_OK);
	assert_string_equal(value, "old");
	assert_int_equal(ID3D12ShaderCacheSession_FindValue(session, "a", 1,
							    value, &size),
			 DXGI_ERROR_NOT_FOUND);
	assert_int_equal(ID3D12ShaderCacheSession_Release(session), 0);
}

static void memory_and_disk_are_different_caches(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = memory_desc();
	ID3D12ShaderCacheSession *memory, *disk;
	UINT size = 0;

	memory = open_session(&desc);
	desc.Mode = D3D12_SHADER_CACHE_MODE_DISK;
	desc.Version = 5;
	disk = open_session(&desc);
	assert_int_equal(
		ID3D12ShaderCacheSession_StoreValue(memory, "a", 1, "m", 1),
		S_OK);
	assert_int_equal(
		ID3D12ShaderCacheSession_FindValue(disk, "a", 1, NULL, &size),
		DXGI_ERROR_NOT_FOUND);
	assert_int_equal(ID3D12ShaderCacheSession_Release(memory), 0);
	assert_int_equal(ID3D12ShaderCacheSession_Release(disk), 0);
}

/* ---- Threads ------------------------------------------------------------------------ */

#define N_THREADS 8

struct race {
	ID3D12ShaderCacheSession *session;
	_Atomic unsigned n_stored, n_refused, n_others;
};

static int store_one(unsigned index, void *arg)
{
	struct race *race = arg;
	UINT value = index;
	HRESULT result = ID3D12ShaderCacheSession_StoreValue(
		race->session, "one key", 7, &value, sizeof(value));

	if (result == S_OK)
		race->n_stored++;
	else if (result == DXGI_ERROR_ALREADY_EXISTS)
		race->n_refused++;
	else
		race->n_others++;
	return 0;
}

static void of_threads_that_store_one_key_one_succeeds(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = memory_desc();

	for (int i = 0; i < 50; i++) {
		struct race race = { .session = open_session(&desc) };

		harness_threads(N_THREADS, store_one, &race);
		assert_int_equal(race.n_stored, 1);
		assert_int_equal(race.n_refused, N_THREADS - 1);
		assert_int_equal(race.n_others, 0);
		ID3D12ShaderCacheSession_Release(race.session);
	}
}

/* Opens, closes, stores and finds, while others do; -1 where a value was not
   what its key says. */
static int do_everything(unsigned index, void *arg)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = memory_desc();
	uint64_t seed = index;

	desc.MaximumInMemoryCacheEntries = 8;
	for (int i = 0; i < 200; i++) {
		uint32_t key = (uint32_t)harness_random(&seed) % 16, value[4];
		ID3D12ShaderCacheSession *session;
		UINT size = sizeof(value);
		HRESULT result;

		if (ID3D12Device9_CreateShaderCacheSession(
			    device, &desc, &IID_ID3D12ShaderCacheSession,
			    (void **)&session))
			return 1;
		for (int n = 0; n < 4; n++)
			value[n] = key;
		ID3D12ShaderCacheSession_StoreValue(session, &key, sizeof(key),
						    value, sizeof(value));
		ID3D12ShaderCacheSession_FindValue(session, &key, sizeof(key),
						   NULL, &size);
		result = ID3D12ShaderCacheSession_FindValue(
			session, &key, sizeof(key), value, &size);
		if (SUCCEEDED(result) &&
		    (size != sizeof(value) || value[3] != key))
			return 1;
		ID3D12ShaderCacheSession_Release(session);
	}
	return 0;
}

static void threads_open_and_close_as_they_like(void **state)
{
	ULONG before = refs_of(device);

	assert_int_equal(harness_threads(N_THREADS, do_everything, NULL), 0);
	assert_int_equal(refs_of(device), before);
}

/* More than there are places between two calls, and twice, so that places of
   threads that are gone are had again. */
#define N_MANY_THREADS 40

static int find_often(unsigned index, void *arg)
{
	ID3D12ShaderCacheSession *session = arg;
	uint32_t value[3];
	UINT size = 0;

	for (int i = 0; i < 50; i++) {
		uint32_t key = (index + (uint32_t)i) % 4;

		if (ID3D12ShaderCacheSession_FindValue(
			    session, &key, sizeof(key), NULL, &size) ||
		    size != sizeof(value) ||
		    ID3D12ShaderCacheSession_FindValue(
			    session, &key, sizeof(key), value, &size) ||
		    value[2] != key)
			return 1;
	}
	/* The last one is left there. */
	return ID3D12ShaderCacheSession_FindValue(session, &index, 4, NULL,
						  &size) != S_OK &&
	       index < 4;
}

static void threads_without_a_place_find_all_the_same(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = memory_desc();
	ID3D12ShaderCacheSession *session = open_session(&desc);

	for (uint32_t key = 0; key < 4; key++) {
		const uint32_t value[] = { key, key, key };

		assert_int_equal(ID3D12ShaderCacheSession_StoreValue(
					 session, &key, sizeof(key), value,
					 sizeof(value)),
				 S_OK);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(
			harness_threads(N_MANY_THREADS, find_often, session),
			0);
	assert_int_equal(ID3D12ShaderCacheSession_Release(session), 0);
}

#define N_KEYS	      10000
#define KEY_BYTES_MAX 300

/* Its number, then anything; keys of one length differ in one place at least. */
static UINT make_key(uint32_t number, unsigned char key[KEY_BYTES_MAX])
{
	uint64_t seed = number % 10;
	UINT size = (UINT)(4 + harness_random(&seed) % (KEY_BYTES_MAX - 3));

	for (UINT i = 0; i < size; i++)
		key[i] = (unsigned char)harness_random(&seed);
	memcpy(key + size - 4, &number, 4);
	return size;
}

static void ten_thousand_keys_are_told_apart(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = memory_desc();
	ID3D12ShaderCacheSession *session;
	unsigned char key[KEY_BYTES_MAX];
	uint32_t found;

	desc.MaximumInMemoryCacheEntries = N_KEYS;
	desc.MaximumInMemoryCacheSizeBytes = UINT32_MAX;
	session = open_session(&desc);
	for (uint32_t i = 0; i < N_KEYS; i++) {
		UINT size = make_key(i, key);

		assert_int_equal(ID3D12ShaderCacheSession_StoreValue(
					 session, key, size, &i, 4),
				 S_OK);
	}
	for (uint32_t i = 0; i < N_KEYS; i++) {
		UINT size = make_key(i, key), found_size = 4;

		assert_int_equal(
			ID3D12ShaderCacheSession_FindValue(session, key, size,
							   &found, &found_size),
			S_OK);
		assert_int_equal(found, i);
	}
	ID3D12ShaderCacheSession_Release(session);
}

#define N_OF(array) (sizeof(array) / sizeof(*(array)))

static const struct CMUnitTest others[] = {
	cmocka_unit_test(references_are_counted_once_for_both_faces),
	cmocka_unit_test(another_version_is_refused_while_a_session_is_open),
	cmocka_unit_test(an_unknown_interface_is_told),
	cmocka_unit_test(a_session_is_a_child_of_its_device),
	cmocka_unit_test(each_session_tells_its_own_limits),
	cmocka_unit_test(a_value_that_goes_between_two_calls_is_whole),
	cmocka_unit_test(memory_and_disk_are_different_caches),
	cmocka_unit_test(of_threads_that_store_one_key_one_succeeds),
	cmocka_unit_test(threads_open_and_close_as_they_like),
	cmocka_unit_test(threads_without_a_place_find_all_the_same),
	cmocka_unit_test(ten_thousand_keys_are_told_apart),
};

int main(void)
{
	struct CMUnitTest tests[N_OF(creations) + N_OF(steps) + N_OF(others)];
	char *directory = harness_directory();
	size_t n = 0, i;
	uint64_t seed = 4;

	setenv("KILN_DIR", directory, 1);
	free(directory);
	for (i = 0; i < sizeof(big); i++) {
		big[i] = (unsigned char)harness_random(&seed);
		other_big[i] = (unsigned char)harness_random(&seed);
	}
	for (i = 0; i < N_OF(creations); i++)
		tests[n++] = (struct CMUnitTest){ creations[i].name,
						  check_creation, NULL, NULL,
						  (void *)&creations[i] };
	for (i = 0; i < N_OF(steps); i++)
		tests[n++] =
			(struct CMUnitTest){ steps[i].name, take_step, NULL,
					     NULL, (void *)&steps[i] };
	memcpy(tests + n, others, sizeof(others));
	return cmocka_run_group_tests(tests, make_device, drop_device);
}
