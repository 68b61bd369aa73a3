/* SPDX-License-Identifier: MIT */

/*
 * kiln key: the keys of this user, and whose signatures count here.
 *
 * What changes files does so in an order that leaves every state in between
 * harmless: a public key without its secret signs nothing, and what is trusted
 * before it signs is trusted for nothing yet.
 */

#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "out.h"
#include "sign/files.h"
#include "store.h"
#include "verbs.h"

#define SYS	 (&ki_sys_posix)
#define ID_CHARS (2 * KI_SIGN_ID_BYTES)

struct keys {
	struct kiln_config *config;
	const char *directory;	      /* of the user's configuration */
	struct ki_sign_trust own;     /* keys/NAME.public */
	struct ki_sign_trust trusted; /* by this user */
	struct ki_sign_trust system;  /* by the machine */
};

/* ---- What there is --------------------------------------------------------- */

static void complain_of(void *arg, const char *path, const char *why)
{
	ki_complain("'%s' %s", path, why);
}

static int read_below(const char *directory, const char *folder,
		      struct ki_sign_trust *trust)
{
	char path[KI_PATH_MAX];

	return ki_path_join(path, directory, folder) ||
	       ki_sign_read_trusted(SYS, path, trust, complain_of, NULL);
}

static int read_keys(struct keys *keys)
{
	return read_below(keys->directory, KI_SIGN_KEYS, &keys->own) ||
	       read_below(keys->directory, KI_SIGN_TRUSTED, &keys->trusted) ||
	       read_below(KI_SIGN_SYSTEM, KI_SIGN_TRUSTED, &keys->system);
}

static void forget(struct keys *keys)
{
	ki_sign_trust_fini(&keys->own);
	ki_sign_trust_fini(&keys->trusted);
	ki_sign_trust_fini(&keys->system);
}

static int load(struct keys *keys)
{
	char message[1024] = "out of memory";
	enum kiln_status status =
		kiln_config_load(&keys->config, message, sizeof(message));

	if (status) {
		ki_complain("%s", message);
		return keys->config ? KI_EXIT_USAGE : KI_EXIT_FAILED;
	}
	keys->directory = kiln_config_user_directory(keys->config);
	if (!keys->directory) {
		ki_complain("neither XDG_CONFIG_HOME nor HOME says where keys "
			    "belong");
		return KI_EXIT_UNAVAILABLE;
	}
	if (read_keys(keys)) {
		ki_complain("out of memory");
		return KI_EXIT_FAILED;
	}
	return KI_EXIT_OK;
}

static int failed(const char *path, const char *why)
{
	ki_complain("'%s' %s", path, why);
	return KI_EXIT_FAILED;
}

static int path_of(const struct keys *keys, const char *folder,
		   const char *name, const char *suffix, char out[KI_PATH_MAX])
{
	if (!ki_sign_path(out, keys->directory, folder, name, suffix))
		return KI_EXIT_OK;
	return failed(keys->directory, "is too long a path");
}

/* Whether this key can sign here: its secret is there, and good. */
static int has_secret(const struct keys *keys, const struct ki_sign_public *key)
{
	struct ki_sign_secret secret;
	char path[KI_PATH_MAX];
	int is_it;

	if (ki_sign_path(path, keys->directory, KI_SIGN_KEYS, key->name,
			 KI_SIGN_SECRET) ||
	    ki_sign_read_secret(SYS, path, &secret, NULL))
		return 0;
	is_it = !memcmp(secret.public.id, key->id, sizeof(key->id));
	ki_sign_secret_fini(&secret);
	return is_it;
}

static const char *trusted_by(const struct keys *keys,
			      const struct ki_sign_public *key)
{
	if (ki_sign_trust_find(&keys->trusted, key->id))
		return "user";
	return ki_sign_trust_find(&keys->system, key->id) ? "system" : NULL;
}

/* ---- Telling --------------------------------------------------------------- */

static void tell_json(struct ki_bytes *out, const struct keys *keys,
		      const struct ki_sign_trust *told)
{
	char id[ID_CHARS + 1], text[KI_SIGN_TEXT_BYTES];
	struct ki_json json;

	ki_out_json(out, &json);
	ki_json_array(&json, "keys");
	for (size_t i = 0; i < told->n_keys; i++) {
		const struct ki_sign_public *key = &told->keys[i];
		const char *by = trusted_by(keys, key);

		ki_hex(key->id, sizeof(key->id), id);
		ki_sign_public_print(key, text);
		ki_json_object(&json, NULL);
		ki_json_string(&json, "name", key->name);
		ki_json_string(&json, "id", id);
		ki_json_string(&json, "public", text);
		ki_json_bool(&json, "signs", has_secret(keys, key));
		if (by)
			ki_json_string(&json, "trusted", by);
		else
			ki_json_null(&json, "trusted");
		ki_json_end(&json);
	}
	ki_json_end(&json);
	ki_json_end(&json);
}

static void tell_table(struct ki_bytes *out, const struct keys *keys,
		       const struct ki_sign_trust *told)
{
	static const struct ki_column columns[] = {
		{ "NAME", 0, 0 },
		{ "ID", 0, 1 },
		{ "SIGNS", 0, 2 },
		{ "TRUSTED BY", 0, 0 },
	};
	char(*ids)[ID_CHARS + 1] = calloc(told->n_keys + 1, sizeof(*ids));
	const char *(*cells)[4] = calloc(told->n_keys + 1, sizeof(*cells));

	for (size_t i = 0; ids && cells && i < told->n_keys; i++) {
		const struct ki_sign_public *key = &told->keys[i];
		const char *by = trusted_by(keys, key);

		ki_hex(key->id, sizeof(key->id), ids[i]);
		cells[i][0] = key->name;
		cells[i][1] = ids[i];
		cells[i][2] = has_secret(keys, key) ? "yes" : "-";
		cells[i][3] = by ? by : "-";
	}
	if (ids && cells)
		ki_out_table(out, columns, 4, &cells[0][0], told->n_keys,
			     ki_out_columns(), ki_out_is_colourful(1));
	free(cells);
	free(ids);
}

static int tell(const struct ki_command *command, const struct keys *keys,
		const struct ki_sign_trust *told)
{
	struct ki_bytes out;

	ki_bytes_init(&out);
	if (ki_given(command, KI_OPTION_JSON))
		tell_json(&out, keys, told);
	else
		tell_table(&out, keys, told);
	return ki_out_write(&out, KI_EXIT_OK);
}

/* What there is now of these, after a change. */
static int tell_anew(const struct ki_command *command, struct keys *keys,
		     const struct ki_sign_trust *told)
{
	forget(keys);
	if (read_keys(keys)) {
		ki_complain("out of memory");
		return KI_EXIT_FAILED;
	}
	return tell(command, keys, told);
}

static int add_all(struct ki_sign_trust *to, const struct ki_sign_trust *from,
		   const char *name)
{
	for (size_t i = 0; i < from->n_keys; i++)
		if ((!name || !strcmp(from->keys[i].name, name)) &&
		    ki_sign_trust_add(to, &from->keys[i]))
			return 1;
	return 0;
}

/* ---- Files ----------------------------------------------------------------- */

static int write_public(const char *path, const struct ki_sign_trust *trust)
{
	char text[KI_SIGN_TEXT_BYTES];
	struct ki_bytes all;
	enum kiln_status status = KILN_E_NO_MEMORY;

	ki_bytes_init(&all);
	for (size_t i = 0; i < trust->n_keys; i++) {
		ki_sign_public_print(&trust->keys[i], text);
		ki_bytes_printf(&all, "%s\n", text);
	}
	ki_bytes_add_u8(&all, 0);
	if (!all.failed)
		status = ki_sign_write(SYS, path, (const char *)all.data, 0644,
				       1);
	ki_bytes_fini(&all);
	return status ? failed(path, "cannot be written") : KI_EXIT_OK;
}

/* The keys of a file that need not be there; `first` stands before them. */
static int prepend(const char *path, const struct ki_sign_public *first)
{
	struct ki_sign_trust trust = { 0 };
	const char *why = "has no room in memory";
	enum kiln_status status = ki_sign_trust_add(&trust, first);
	int result;

	if (!status)
		status = ki_sign_read_public(SYS, path, &trust, &why);
	result = status && status != KILN_MISS ? failed(path, why)
					       : write_public(path, &trust);
	ki_sign_trust_fini(&trust);
	return result;
}

static int make_pair(const char *name, struct ki_sign_secret *out_secret)
{
	uint8_t seed[KI_SIGN_SEED_BYTES];
	enum kiln_status status = KILN_E_IO;

	if (!SYS->random(SYS, seed, sizeof(seed)))
		status = ki_sign_secret_new(name, seed, out_secret);
	ki_sign_wipe(seed, sizeof(seed));
	if (!status)
		return KI_EXIT_OK;
	if (status == KILN_E_INVALID)
		ki_complain("'%s' is no name of a key; use 1 to 64 letters, "
			    "digits, dots, dashes or underscores",
			    name);
	else
		ki_complain("the system gives no random bytes");
	return status == KILN_E_INVALID ? KI_EXIT_USAGE : KI_EXIT_FAILED;
}

static enum kiln_status write_secret(const char *path,
				     const struct ki_sign_secret *secret,
				     int replace)
{
	char text[KI_SIGN_TEXT_BYTES + 1];
	enum kiln_status status;

	ki_sign_secret_print(secret, text);
	strcat(text, "\n");
	status = ki_sign_write(SYS, path, text, 0600, replace);
	ki_sign_wipe(text, sizeof(text));
	return status;
}

static int tell_pair(const struct ki_command *command, struct keys *keys,
		     const struct ki_sign_public *key)
{
	struct ki_sign_trust told = { 0 };
	int result = KI_EXIT_FAILED;

	if (!ki_sign_trust_add(&told, key))
		result = tell_anew(command, keys, &told);
	ki_sign_trust_fini(&told);
	return result;
}

/* ---- The verbs below the verb ---------------------------------------------- */

typedef int action_fn(const struct ki_command *command, struct keys *keys,
		      const char *word);

static int list(const struct ki_command *command, struct keys *keys,
		const char *word)
{
	struct ki_sign_trust all = { 0 };
	int result = KI_EXIT_FAILED;

	if (!add_all(&all, &keys->own, NULL) &&
	    !add_all(&all, &keys->trusted, NULL) &&
	    !add_all(&all, &keys->system, NULL))
		result = tell(command, keys, &all);
	else
		ki_complain("there are too many keys");
	ki_sign_trust_fini(&all);
	return result;
}

static int new_key(const struct ki_command *command, struct keys *keys,
		   const char *name)
{
	char secret_path[KI_PATH_MAX], public_path[KI_PATH_MAX];
	struct ki_sign_secret secret;
	enum kiln_status status;
	int result = make_pair(name, &secret);

	if (result)
		return result;
	result = path_of(keys, KI_SIGN_KEYS, name, KI_SIGN_SECRET, secret_path);
	if (!result)
		result = path_of(keys, KI_SIGN_KEYS, name, KI_SIGN_PUBLIC,
				 public_path);
	if (!result) {
		status = write_secret(secret_path, &secret, 0);
		if (status == KILN_EXISTS)
			result = failed(secret_path,
					"is there already; 'kiln key rotate' "
					"makes a new key of that name");
		else if (status)
			result = failed(secret_path, "cannot be written");
	}
	if (!result)
		result = prepend(public_path, &secret.public);
	if (!result)
		result = tell_pair(command, keys, &secret.public);
	ki_sign_secret_fini(&secret);
	return result;
}

/* Whoever trusts the old key here trusts the new one. */
static int pass_trust_on(struct keys *keys, const struct ki_sign_public *old,
			 const struct ki_sign_public *key)
{
	char path[KI_PATH_MAX];
	int result;

	if (!ki_sign_trust_find(&keys->trusted, old->id))
		return KI_EXIT_OK;
	result =
		path_of(keys, KI_SIGN_TRUSTED, key->name, KI_SIGN_PUBLIC, path);
	return result ? result : prepend(path, key);
}

static int rotate(const struct ki_command *command, struct keys *keys,
		  const char *name)
{
	char secret_path[KI_PATH_MAX], public_path[KI_PATH_MAX];
	struct ki_sign_secret old, secret;
	const char *why;
	enum kiln_status status;
	int result = make_pair(name, &secret);

	if (result)
		return result;
	result = path_of(keys, KI_SIGN_KEYS, name, KI_SIGN_SECRET, secret_path);
	if (!result)
		result = path_of(keys, KI_SIGN_KEYS, name, KI_SIGN_PUBLIC,
				 public_path);
	if (!result) {
		status = ki_sign_read_secret(SYS, secret_path, &old, &why);
		if (status)
			result = failed(secret_path, why);
		if (status == KILN_MISS)
			result = KI_EXIT_NOT_FOUND;
	}
	if (!result) {
		result = prepend(public_path, &secret.public);
		if (!result)
			result = pass_trust_on(keys, &old.public,
					       &secret.public);
		if (!result && write_secret(secret_path, &secret, 1))
			result = failed(secret_path, "cannot be written");
		ki_sign_secret_fini(&old);
	}
	if (!result)
		result = tell_pair(command, keys, &secret.public);
	ki_sign_secret_fini(&secret);
	return result;
}

/* What an argument of trust names: a key's text, a key of ours, a file. */
static int read_named(const struct keys *keys, const char *word,
		      struct ki_sign_trust *out_trust)
{
	struct ki_sign_public key;
	const char *why = "has no room in memory";

	if (ki_sign_text_is_secret(word)) {
		ki_complain("that is a secret key, and others may have seen it "
			    "in this command line: use 'kiln key rotate', and "
			    "pass on what 'kiln key show' prints");
		return KI_EXIT_USAGE;
	}
	if (!ki_sign_public_parse(word, &key)) {
		if (!ki_sign_trust_add(out_trust, &key))
			return KI_EXIT_OK;
	} else if (ki_sign_name_is_good(word, strlen(word)) &&
		   !add_all(out_trust, &keys->own, word) && out_trust->n_keys) {
		return KI_EXIT_OK;
	} else if (!ki_sign_read_public(SYS, word, out_trust, &why)) {
		return KI_EXIT_OK;
	}
	return failed(word, why);
}

static int trust(const struct ki_command *command, struct keys *keys,
		 const char *word)
{
	struct ki_sign_trust named = { 0 };
	char path[KI_PATH_MAX];
	int result = read_named(keys, word, &named);

	for (size_t i = named.n_keys; i-- && !result;) {
		result = path_of(keys, KI_SIGN_TRUSTED, named.keys[i].name,
				 KI_SIGN_PUBLIC, path);
		if (!result)
			result = prepend(path, &named.keys[i]);
	}
	if (!result && !named.n_keys)
		result = failed(word, "has no key in it");
	if (!result)
		result = tell_anew(command, keys, &named);
	ki_sign_trust_fini(&named);
	return result;
}

static int is_named(const struct ki_sign_public *key, const char *word)
{
	char id[ID_CHARS + 1];

	ki_hex(key->id, sizeof(key->id), id);
	return !strcmp(key->name, word) || !strcmp(id, word);
}

/* The keys that `word` names or is the id of, or the others. */
static int select_keys(const struct ki_sign_trust *from, const char *word,
		       int wanted, struct ki_sign_trust *to)
{
	for (size_t i = 0; i < from->n_keys; i++)
		if (is_named(&from->keys[i], word) == wanted &&
		    ki_sign_trust_add(to, &from->keys[i]))
			return 1;
	return 0;
}

/* Out of the file of a name; which goes when it is empty. */
static int distrust_in(const struct keys *keys, const char *name,
		       const char *word)
{
	struct ki_sign_trust all = { 0 }, rest = { 0 };
	char path[KI_PATH_MAX];
	const char *why = "has no room in memory";
	int result = path_of(keys, KI_SIGN_TRUSTED, name, KI_SIGN_PUBLIC, path);
	enum kiln_status status;

	if (result)
		return result;
	status = ki_sign_read_public(SYS, path, &all, &why);
	if (!status && select_keys(&all, word, 0, &rest))
		status = KILN_E_NO_MEMORY;
	if (status && status != KILN_MISS)
		result = failed(path, why);
	else if (!status && rest.n_keys)
		result = write_public(path, &rest);
	else if (!status && SYS->unlink(SYS, path))
		result = failed(path, "cannot be removed");
	ki_sign_trust_fini(&rest);
	ki_sign_trust_fini(&all);
	return result;
}

static int check_distrusted(const struct keys *keys,
			    const struct ki_sign_trust *named)
{
	for (size_t i = 0; i < named->n_keys; i++) {
		const char *by = trusted_by(keys, &named->keys[i]);

		if (!by)
			continue;
		ki_complain("'%s' is still trusted, by another file in "
			    "'%s/" KI_SIGN_TRUSTED "'",
			    named->keys[i].name,
			    *by == 's' ? KI_SIGN_SYSTEM : keys->directory);
		return KI_EXIT_FAILED;
	}
	return KI_EXIT_OK;
}

static int distrust(const struct ki_command *command, struct keys *keys,
		    const char *word)
{
	struct ki_sign_trust named = { 0 };
	int result = KI_EXIT_OK;

	if (select_keys(&keys->trusted, word, 1, &named) ||
	    select_keys(&keys->system, word, 1, &named)) {
		result = failed(word, "has no room in memory");
	} else if (!named.n_keys) {
		ki_complain("no key that is trusted has the name or id '%s'",
			    word);
		result = KI_EXIT_NOT_FOUND;
	}
	for (size_t i = 0; i < named.n_keys && !result; i++)
		result = distrust_in(keys, named.keys[i].name, word);
	if (!result)
		result = tell_anew(command, keys, &named);
	if (!result)
		result = check_distrusted(keys, &named);
	ki_sign_trust_fini(&named);
	return result;
}

static int print_public(const struct ki_sign_trust *named)
{
	char text[KI_SIGN_TEXT_BYTES];
	struct ki_bytes out;

	ki_bytes_init(&out);
	for (size_t i = 0; i < named->n_keys; i++) {
		ki_sign_public_print(&named->keys[i], text);
		ki_bytes_printf(&out, "%s\n", text);
	}
	return ki_out_write(&out, KI_EXIT_OK);
}

static int show(const struct ki_command *command, struct keys *keys,
		const char *word)
{
	struct ki_sign_trust named = { 0 };
	int result;

	if (select_keys(&keys->own, word, 1, &named) ||
	    select_keys(&keys->trusted, word, 1, &named) ||
	    select_keys(&keys->system, word, 1, &named)) {
		result = failed(word, "has no room in memory");
	} else if (!named.n_keys) {
		ki_complain("no key has the name or id '%s'", word);
		result = KI_EXIT_NOT_FOUND;
	} else if (ki_given(command, KI_OPTION_JSON)) {
		result = tell(command, keys, &named);
	} else {
		result = print_public(&named);
	}
	ki_sign_trust_fini(&named);
	return result;
}

static const struct action {
	const char *name;
	int n_arguments;
	action_fn *body;
} actions[] = {
	{ "new", 1, new_key },	     { "ls", 0, list },
	{ "show", 1, show },	     { "trust", 1, trust },
	{ "distrust", 1, distrust }, { "rotate", 1, rotate },
};

static const struct action *find_action(const struct ki_command *command)
{
	const char *name = command->arguments[0];

	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
		const struct action *action = &actions[i];

		if (strcmp(name, action->name))
			continue;
		if (command->n_arguments == action->n_arguments + 1)
			return action;
		if (command->n_arguments > 1)
			ki_complain(
				"key %s: '%s' is too much", name,
				command->arguments[action->n_arguments + 1]);
		else
			ki_complain("key %s needs NAME; see 'kiln key --help'",
				    name);
		return NULL;
	}
	ki_complain("key: '%s' is not one of new, ls, show, trust, distrust, "
		    "rotate",
		    name);
	return NULL;
}

int ki_verb_key(const struct ki_command *command)
{
	const struct action *action = find_action(command);
	struct keys keys = { 0 };
	int result;

	if (!action)
		return KI_EXIT_USAGE;
	result = load(&keys);
	if (!result)
		result = action->body(command, &keys, command->arguments[1]);
	forget(&keys);
	kiln_config_free(keys.config);
	return result;
}
