/* SPDX-License-Identifier: MIT */

/* The table of verbs; each has a file of its own. */

#include "verbs.h"

#include "filter.h"

#define COMMON (KI_HAS(HELP) | KI_HAS(JSON))

const struct ki_verb ki_verbs[] = {
	{ .name = "run",
	  .arguments = "[--] PROGRAM [ARGUMENT...]",
	  .summary = "run a program with its compilations cached",
	  .about = "The program gets the OpenCL layer of kiln and is otherwise "
		   "left\n"
		   "alone: same terminal, same signals, same exit status.  "
		   "When it\n"
		   "has ended, kiln-worker makes in the background what the "
		   "program\n"
		   "could not wait for.  What the store does not have is "
		   "looked for in\n"
		   "the packs given, then in those of KILN_PACKS; nothing is "
		   "written there.\n",
	  .examples =
		  "kiln run -- ./app --its-own-option # keep what it compiles\n"
		  "kiln run --wait -- ./app # return when all of it is kept\n"
		  "kiln run --store neo:$HOME/.cache/neo_compiler_cache -- "
		  "./app # share a directory with the driver of Intel\n"
		  "kiln run --pack app.pack -- ./app # not even the first run "
		  "compiles\n",
	  .options = KI_HAS(HELP) | KI_HAS(STORE) | KI_HAS(PACK) | KI_HAS(WAIT),
	  .n_arguments_min = 1,
	  .n_arguments_max = -1,
	  .is_wrapper = 1,
	  .usage_status = KI_EXIT_RUN_FAILED,
	  .body = ki_verb_run },
	{ .name = "wait",
	  .arguments = "",
	  .summary = "wait until the jobs of earlier runs are done",
	  .about = "And until what was built is on the servers of KILN_REMOTE, "
		   "or was given\n"
		   "up: a machine that ends with its work waits first.\n",
	  .options = COMMON,
	  .usage_status = KI_EXIT_USAGE,
	  .body = ki_verb_wait },
	{ .name = "wrap",
	  .arguments = "[--] COMPILER [ARGUMENT...]",
	  .summary = "run a compiler ahead of time, from the cache if nothing "
		     "changed",
	  .about = "For glslc, glslangValidator, ocloc compile and nvcc "
		   "-cubin, -ptx or -fatbin.\n"
		   "Where compiler, arguments, variables, inputs and all that "
		   "they include are\n"
		   "as they were, its output files, messages and exit status "
		   "come from the store.\n"
		   "What is not understood runs as if kiln were not there: "
		   "other compilers,\n"
		   "options that are not known, standard input, outputs "
		   "without a name.  Of\n"
		   "several that want the same at once, one compiles.\n",
	  .examples = "kiln wrap -- glslc -O shader.comp -o shader.spv # as in "
		      "a makefile\n"
		      "kiln wrap -v -- ocloc compile -file k.cl -device tgllp "
		      "# and say what was done\n"
		      "kiln wrap -- nvcc -cubin -arch=sm_80 k.cu # for a card "
		      "of NVIDIA\n",
	  .options = KI_HAS(HELP) | KI_HAS(STORE) | KI_HAS(VERBOSE),
	  .n_arguments_min = 1,
	  .n_arguments_max = -1,
	  .is_wrapper = 1,
	  .usage_status = KI_EXIT_RUN_FAILED,
	  .body = ki_verb_wrap },
	{ .name = "ls",
	  .arguments = "",
	  .summary = "list what is cached, newest first",
	  .about = "All filters that are given must fit.  An entry that does "
		   "not say what a\n"
		   "filter asks is left out, and counted on standard "
		   "error.  Of what\n"
		   "is sorted by size, last use or build time the most comes "
		   "first.\n",
	  .examples =
		  "kiln ls --sort size --larger-than 1M # what fills it\n"
		  "kiln ls --long --application blender # of one "
		  "program\n"
		  "kiln ls --json | jq '.entries[].key' # the keys, for a "
		  "script\n"
		  "kiln ls sycl: # what the SYCL runtime of DPC++ has kept\n",
	  .options = COMMON | KI_HAS(STORE) | KI_HAS(ALL) | KI_HAS_FILTERS |
		     KI_HAS(SORT) | KI_HAS(LONG),
	  .usage_status = KI_EXIT_USAGE,
	  .body = ki_verb_ls },
	{ .name = "show",
	  .arguments = "KEY",
	  .summary = "show one entry: its key, field by field, and its history",
	  .about = "KEY is the beginning of a key, at least 6 digits of it.\n",
	  .examples =
		  "kiln show b3ae45 # one entry; the first digits will do\n",
	  .options = COMMON | KI_HAS(STORE),
	  .n_arguments_min = 1,
	  .n_arguments_max = 1,
	  .usage_status = KI_EXIT_USAGE,
	  .body = ki_verb_show },
	{ .name = "extract",
	  .arguments = "KEY",
	  .summary = "write what an entry keeps into a file",
	  .about = "KEY is the beginning of a key, at least 6 digits of it.  "
		   "Without\n"
		   "--output the value goes to standard output, unless that "
		   "is a terminal.\n"
		   "A value is as the cache keeps it: of an OpenCL program the "
		   "binaries of\n"
		   "all its devices, of which --device takes one, from 0 on.  "
		   "Of an entry\n"
		   "that is a driver's own, its file.\n",
	  .examples = "kiln extract 0123456789ab -o value # the whole value\n"
		      "kiln extract 0123456789ab --device 0 | file - # what "
		      "the driver made\n",
	  .options =
		  COMMON | KI_HAS(STORE) | KI_HAS(OUTPUT) | KI_HAS(BINARY_OF),
	  .n_arguments_min = 1,
	  .n_arguments_max = 1,
	  .usage_status = KI_EXIT_USAGE,
	  .body = ki_verb_extract },
	{ .name = "why",
	  .arguments = "[KEY [KEY]]",
	  .summary = "say in words what made an entry another than its like",
	  .about = "Without a key, says why the last run missed what it did: "
		   "each entry\n"
		   "that came of a miss is compared with the nearest of those "
		   "before.  With one\n"
		   "key, compares with the nearest entry: of the same source "
		   "if there is one,\n"
		   "and with the fewest differences.  With two, says what led "
		   "from the first\n"
		   "to the second.  A run is a process; of a program that runs "
		   "twice at once,\n"
		   "entries may be taken for those of the other.\n",
	  .examples =
		  "kiln why # after a program has run: what it missed, and "
		  "why\n"
		  "kiln why b3ae45 # why it is not the entry that was there "
		  "before\n"
		  "kiln why b3ae45 07e1a6 # what led from one to the other\n",
	  .options = COMMON | KI_HAS(STORE),
	  .n_arguments_max = 2,
	  .usage_status = KI_EXIT_USAGE,
	  .body = ki_verb_why },
	{ .name = "stats",
	  .arguments = "",
	  .summary = "show hits, misses by reason and the time saved",
	  .about = "Counts are kept per hour for 31 days, and in all since "
		   "the store was made\n"
		   "or --zero was used; of the 16 applications that used it "
		   "last, and of the\n"
		   "last run, since this kiln counts them.  A run is a "
		   "process.  With --json\n"
		   "everything is shown at once.\n",
	  .examples = "kiln stats --since 7d # the last week\n"
		      "kiln stats --last-run # after a program has ended\n"
		      "kiln stats --prometheus > kiln.prom # metrics, in a "
		      "file\n",
	  .options = COMMON | KI_HAS(STORE) | KI_HAS(ZERO) | KI_HAS(SINCE) |
		     KI_HAS(LAST_RUN) | KI_HAS(APPLICATIONS) |
		     KI_HAS(PROMETHEUS),
	  .usage_status = KI_EXIT_USAGE,
	  .body = ki_verb_stats },
	{ .name = "report",
	  .arguments = "[FILE]",
	  .summary =
		  "write a page about the cache: use, contents, what is slow",
	  .about = "One HTML file that needs nothing else: no script, no "
		   "network.  Without\n"
		   "FILE, or with -, it goes to standard output.  It names "
		   "applications,\n"
		   "build options and the store; look before you pass it "
		   "on.\n",
	  .examples = "kiln report kiln.html # the store in use\n",
	  .options = COMMON | KI_HAS(STORE),
	  .n_arguments_max = 1,
	  .usage_status = KI_EXIT_USAGE,
	  .body = ki_verb_report },
	{ .name = "top",
	  .arguments = "",
	  .summary =
		  "watch the cache: rates, misses by reason, what is biggest",
	  .about = "Once a second, on a terminal.  q leaves, p pauses, r "
		   "counts from now on.\n"
		   "HERE is what was counted since top began, or since r.  "
		   "With --json, tells\n"
		   "what was counted in one second, and ends.\n",
	  .options = COMMON | KI_HAS(STORE),
	  .usage_status = KI_EXIT_USAGE,
	  .body = ki_verb_top },
	{ .name = "verify",
	  .arguments = "",
	  .summary = "read and check every entry, and what is kept beside",
	  .about = "Damaged entries are findings: exit status 4.  Looking "
		   "changes nothing;\n"
		   "--repair moves damaged ones to the store's quarantine, "
		   "where 'kiln gc'\n"
		   "leaves them for 30 days.  neo: and sycl: directories have "
		   "none: there\n"
		   "--repair removes them, others' too if they are empty or "
		   "cut short.  Programs\n"
		   "may go on using the store meanwhile.\n",
	  .examples = "kiln verify # is every entry whole?\n"
		      "kiln verify --repair # put aside what is not\n",
	  .options =
		  COMMON | KI_HAS(STORE) | KI_HAS(REPAIR) | KI_HAS(ACCOUNTING),
	  .usage_status = KI_EXIT_USAGE,
	  .body = ki_verb_verify },
	{ .name = "gc",
	  .arguments = "",
	  .summary = "bring the store under its limits now",
	  .about = "Evicts what was not used for longest if the store is "
		   "larger than its\n"
		   "limit, and removes expired entries, files in which nothing "
		   "is of use any\n"
		   "more, what writers left that died, and damaged entries put "
		   "aside more\n"
		   "than 30 days ago.  Stores do this by themselves in time; "
		   "programs may go\n"
		   "on using the store meanwhile.  The store's own limits stay "
		   "as they are.\n\n"
		   "With --d3d12, lists and clears the shader caches of "
		   "programs, as a disk\n"
		   "cleaner would, and leaves those alone that lie in working "
		   "directories.\n\n"
		   "With --namespace, all this is of its entries alone, and "
		   "its quota counts as\n"
		   "a limit, too.  A namespace is what KILN_NAMESPACE said, "
		   "else the name of\n"
		   "the program.\n",
	  .examples = "kiln gc --max-size 500M # make room now\n"
		      "kiln gc --older-than 30d # remove what nobody used for "
		      "a month\n"
		      "kiln gc --namespace blender --max-size 100M # of one "
		      "program\n"
		      "kiln gc --d3d12 --dry-run # which shader caches are "
		      "there?\n",
	  .options = COMMON | KI_HAS(STORE) | KI_HAS(MAX_SIZE) |
		     KI_HAS(OLDER_THAN) | KI_HAS(NAMESPACE) |
		     KI_HAS(QUARANTINE) | KI_HAS(D3D12) | KI_HAS(DRY_RUN),
	  .usage_status = KI_EXIT_USAGE,
	  .body = ki_verb_gc },
	{ .name = "rebuild",
	  .arguments = "",
	  .summary = "make all entries again for the drivers that are here now",
	  .about = "After an upgrade of a driver its entries are of no use any "
		   "more.  This\n"
		   "compiles all that the store knows of again, from the "
		   "sources that it keeps\n"
		   "beside the entries, as the programs did: in their "
		   "directory, with their\n"
		   "options and variables.  What is there already is not "
		   "built.  Each build is\n"
		   "a process of its own, with limits; what crashes or takes "
		   "too long is not\n"
		   "tried again with the same driver, but with --retry.  May "
		   "be interrupted\n"
		   "and begun again at any time.  Jobs of earlier runs are "
		   "done first.\n",
	  .examples = "kiln rebuild # after a driver upgrade\n"
		      "kiln rebuild --device cpu -j 2 # a part of it, and "
		      "gently\n",
	  .options = COMMON | KI_HAS(STORE) | KI_HAS(DEVICE) | KI_HAS(RETRY) |
		     KI_HAS(AT_ONCE) | KI_HAS(TIME_LIMIT) |
		     KI_HAS(MEMORY_LIMIT),
	  .usage_status = KI_EXIT_USAGE,
	  .body = ki_verb_rebuild },
	{ .name = "rm",
	  .arguments = "KEY...",
	  .summary = "remove single entries",
	  .about = "KEY is the beginning of a key, at least 6 digits of it.  "
		   "If one of\n"
		   "them names no entry, nothing is removed.  What servers "
		   "have (KILN_REMOTE)\n"
		   "stays there.\n",
	  .options = COMMON | KI_HAS(STORE),
	  .n_arguments_min = 1,
	  .n_arguments_max = -1,
	  .usage_status = KI_EXIT_USAGE,
	  .body = ki_verb_rm },
	{ .name = "clear",
	  .arguments = "",
	  .summary = "remove all entries and pending jobs",
	  .about = "Asks nothing.  Programs that use the store notice and go "
		   "on.  With\n"
		   "--namespace, removes the entries of that one, and no "
		   "jobs.\n",
	  .examples = "kiln clear # all of it\n"
		      "kiln clear --namespace blender # what one program "
		      "has\n",
	  .options = COMMON | KI_HAS(STORE) | KI_HAS(NAMESPACE),
	  .usage_status = KI_EXIT_USAGE,
	  .body = ki_verb_clear },
	{ .name = "export",
	  .arguments = "FILE",
	  .summary = "write entries into a pack, for other machines",
	  .about = "A pack is one file that is written once and then only "
		   "read.  What\n"
		   "applications were seen to use comes first, in the order "
		   "of first use,\n"
		   "then the rest as it was made.  Where it ran, for whom and "
		   "from which\n"
		   "source stays here, and so do entries whose keys are of "
		   "this machine\n"
		   "alone.  The key of KILN_SIGNING_KEY signs, or 'default' if "
		   "there is one:\n"
		   "'kiln key' makes them.\n",
	  .examples = "kiln export --application app app.pack # what this "
		      "program uses\n"
		      "kiln export --newer-than 7d --key ci week.pack # the "
		      "last week, signed\n",
	  .options = COMMON | KI_HAS(STORE) | KI_HAS_FILTERS | KI_HAS(KEY) |
		     KI_HAS(REPLACE),
	  .n_arguments_min = 1,
	  .n_arguments_max = 1,
	  .usage_status = KI_EXIT_USAGE,
	  .body = ki_verb_export },
	{ .name = "import",
	  .arguments = "FILE",
	  .summary = "bring the entries of a pack into the store",
	  .about = "What the store has stays as it is.  The pack must have a "
		   "signature of a\n"
		   "key that is trusted here: a value is code.  With "
		   "--trust-unsigned it need\n"
		   "not, and of one that was cut short what is left is "
		   "taken.  A store of a\n"
		   "program that has versions takes packs of the same version "
		   "alone.\n",
	  .examples = "kiln verify pack:app.pack # is it whole, and signed "
		      "by whom you trust?\n"
		      "kiln import app.pack # what is not there yet\n",
	  .options = COMMON | KI_HAS(STORE) | KI_HAS(TRUST_UNSIGNED),
	  .n_arguments_min = 1,
	  .n_arguments_max = 1,
	  .usage_status = KI_EXIT_USAGE,
	  .body = ki_verb_import },
	{ .name = "doctor",
	  .arguments = "",
	  .summary = "say whether caching works here, and if not, why",
	  .about = "",
	  .examples = "kiln doctor # would programs be cached here?\n",
	  .options = COMMON,
	  .usage_status = KI_EXIT_USAGE,
	  .body = ki_verb_doctor },
	{ .name = "config",
	  .arguments = "",
	  .summary = "show every setting, its value and where it comes from",
	  .about = "With --store, shows the limit that this store has of its "
		   "own.  With\n"
		   "--limit, changes it, of the store in use where none is "
		   "named: for all\n"
		   "programs, and at once.  A lower one evicts what was not "
		   "used for longest.\n"
		   "With --eviction, changes what goes first when it is full: "
		   "by 'recency' what\n"
		   "was not used since it was looked at last, by 'cost' what "
		   "is large and was\n"
		   "built fast (a driver's own entries go by their age: nobody "
		   "knows what they\n"
		   "took).\n\n"
		   "With --namespace, shows what one program, or whoever was "
		   "given that name by\n"
		   "KILN_NAMESPACE, may take of the store, and with --max-size "
		   "changes it.  What\n"
		   "it puts beyond that evicts entries of its own, never "
		   "those of others.\n",
	  .examples = "kiln config # every value, and where it comes from\n"
		      "kiln config --store log:/srv/kiln --limit 4G # a store "
		      "of 4 GiB\n"
		      "kiln config --namespace blender --max-size 200M # of "
		      "one program\n"
		      "kiln config --namespace '*' --max-size 500M # of each "
		      "other\n",
	  .options = COMMON | KI_HAS(STORE) | KI_HAS(LIMIT) | KI_HAS(EVICTION) |
		     KI_HAS(QUOTA_OF) | KI_HAS(QUOTA),
	  .usage_status = KI_EXIT_USAGE,
	  .body = ki_verb_config },
	{ .name = "key",
	  .arguments = "new|ls|show|trust|distrust|rotate [NAME]",
	  .summary = "make keys that sign, and say whose signatures count",
	  .about =
		  "A value is machine code.  Once a key is trusted, packs, and "
		  "stores that a\n"
		  "group shares, need the signature of one that is.\n"
		  "\n"
		  "new NAME: make a key.  The one named 'default' signs "
		  "without "
		  "being named.\n"
		  "\n"
		  "ls: list the keys that sign here, or are trusted.\n"
		  "\n"
		  "show NAME: print the public half, which others may have.\n"
		  "\n"
		  "trust NAME: trust a key of one's own, the text that show "
		  "prints, or a\n"
		  "file of such lines.\n"
		  "\n"
		  "distrust NAME: no longer.  An id is one key of a name that "
		  "has several.\n"
		  "\n"
		  "rotate NAME: sign with a new key of that name from now on.  "
		  "The old one,\n"
		  "trusted or not, stays so, for what it has signed.\n"
		  "\n"
		  "A secret is in its file alone, which nobody else may read; "
		  "it is never\n"
		  "printed.\n",
	  .examples = "kiln key new default # what I export is signed\n"
		      "kiln key show default > me.public # for others\n"
		      "kiln key trust me.public # what others do with it\n",
	  .options = COMMON,
	  .n_arguments_min = 1,
	  .n_arguments_max = 2,
	  .usage_status = KI_EXIT_USAGE,
	  .body = ki_verb_key },
	{ .name = NULL },
};
