/* SPDX-License-Identifier: MIT */

/*
 * The native store's protocols (docs/formats/log.md, docs/locking.md) as a
 * model for spin: create-only and replacing puts, remove, roll with eviction,
 * index growth, wipe, and a reader, each of which may be slow anywhere, and some
 * killed or stopped for good.  `check` beside this file runs every scenario, and
 * `check --mutants` shows that a rule left out is noticed; -D picks one:
 *
 *	CREATORS n	create-only puts of key 0
 *	REPLACERS n	replacing puts of key 0
 *	OTHERS n	create-only puts of key 1, which shares the buckets
 *	REMOVERS n, ROLLERS n, GROWERS n, WIPERS n, READERS n
 *	KILLS n		how many may die on the way
 *	STOPS n		how many may be stopped for good while they hold byte 0
 *	BEFORE		an entry of key 0 is there from the start
 *	CROWD		the buckets are full of other keys' entries
 *	ANY_SLOT 1	a word goes into any free slot, not into the last one
 *	IN_TURN		puts take room in the order they were made: they are all
 *			alike, so nothing is missed by it
 *	PATIENT		no put may give up
 *
 * What is left out: contents (a record is whole or it is not; checksums are
 * taken to work), the medium, large files, and time limits: a lock is waited for
 * until it comes or its holder is stopped, so that waiting for ever would be
 * seen as a deadlock.
 *
 * One step of the model is one access to what processes share.
 */

#ifndef CREATORS
#define CREATORS 0
#endif
#ifndef REPLACERS
#define REPLACERS 0
#endif
#ifndef OTHERS
#define OTHERS 0
#endif
#ifndef REMOVERS
#define REMOVERS 0
#endif
#ifndef ROLLERS
#define ROLLERS 0
#endif
#ifndef GROWERS
#define GROWERS 0
#endif
#ifndef WIPERS
#define WIPERS 0
#endif
#ifndef READERS
#define READERS 0
#endif
#ifndef ANY_SLOT
#define ANY_SLOT 0
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef STOPS
#define STOPS 0
#endif

#define SLOTS	 2	/* both buckets of both keys */
#define SEGMENTS 6
#ifndef UNITS
#define UNITS	 2	/* records that a segment holds */
#endif
#define PLACES	 ((SEGMENTS + 1) * UNITS)
#define TRIES	 16

/* Where nobody rolls, grows or wipes, all that a word leads to stands still, and
   looking at it with the word is one access. */
#if UNITS > 2 && ROLLERS + GROWERS + WIPERS == 0
#define TOGETHER atomic
#else
#define TOGETHER
#endif

/* A word: 0, or the place of a record and whether its put has not settled. */
#define WORD(place, tentative) ((place) * 2 + (tentative))
#define PLACE(word)	       ((word) / 2)
#define IS_TENTATIVE(word)     ((word) % 2)
#define SEGMENT(place)	       ((place) / UNITS)
#define ORDER(word)	       origin[PLACE(word)]

typedef Index {
	byte word[SLOTS];
	byte tail;	/* the next place; 0: closed */
	byte min_live;	/* segments before are dead */
	byte retired;	/* 0, GROWN, WIPED */
};
#define GROWN 1
#define WIPED 2

Index indexes[3];	/* each store and each growth takes the next */
byte current = 0;	/* what the path leads to */
byte n_indexes = 1;

bit whole[PLACES];	/* a record was written here */
byte key_of[PLACES];
bit replaces[PLACES];	/* by a replacing put */
byte origin[PLACES];	/* its order: the place where its put wrote it */
bit file[SEGMENTS + 1];	/* the path leads to it */
byte next_number = 2;

bit structure = 0;	/* byte 0 */

/* For the judge. */
byte n_created = 0;	/* create-only puts of key 0 that said OK */
byte n_exists = 0;
byte n_replaced = 0;
byte n_other = 0;
byte n_killed = 0;
byte n_stopped = 0;
byte n_begun = 0;	/* puts that have taken room */
byte n_given_up = 0;	/* TIMEOUT: nothing was promised */
byte n_dropped = 0;	/* entries of key 0 that eviction let go */
byte was_read = 0;	/* origin of what a look-up of key 0 found */
bit is_wiped = 0;	/* a wipe is over */
bit is_removed = 0;	/* a remove of key 0 is over, no put began since */
byte n_running = 0;

#define IS_LIVE(ix, w) \
	((w) != 0 && SEGMENT(PLACE(w)) >= indexes[ix].min_live)

/* By its tag. */
#define MAY_BE_OF(w, k) ((w) != 0 && key_of[PLACE(w)] == (k))

/* What verifies: a whole record of this key whose file can be opened. */
#define IS_OF(w, k) (file[SEGMENT(PLACE(w))] && IS_OPEN_OF(w, k))
/* The same for those who have all files open. */
#define IS_OPEN_OF(w, k) (MAY_BE_OF(w, k) && whole[PLACE(w)])

/* ---- Put ------------------------------------------------------------------ */

#define MAY_DIE	 if :: n_killed < KILLS -> n_killed++; goto dead :: true fi
#define MAY_STOP if :: n_stopped < STOPS -> n_stopped++; goto stopped :: true fi

/* Byte 0.  Not `holds`: its holder is stopped, and our time limit is over. */
inline take_structure()
{
	atomic {
		if
		:: structure == 0 -> structure = 1; holds = 1
		:: structure && n_stopped > 0 -> holds = 0
		fi
	}
}

/* The system does the same for those who die. */
inline leave_structure()
{
	atomic {
		if
		:: holds -> structure = 0; holds = 0
		:: else -> skip
		fi
	}
}

/* A settled word is read, then verified; one that has changed meanwhile was
   perhaps swung to another place of the same record, so it is read again. */
inline find(ix, k, slot, w, is_open)
{
	slot = 0;
	do
	:: slot == SLOTS -> w = 0; break
	:: else -> TOGETHER {
		w = indexes[ix].word[slot];
		if
		:: !MAY_BE_OF(w, k) || IS_TENTATIVE(w) -> slot++
		:: MAY_BE_OF(w, k) && !IS_TENTATIVE(w) &&
		   IS_LIVE(ix, w) &&
		   (IS_OF(w, k) || (is_open && IS_OPEN_OF(w, k))) -> break
		:: else ->
			if
			:: indexes[ix].word[slot] == w -> slot++
			:: else -> skip
			fi
		fi }
	od
}

inline swap(ix, slot, from, to, did)
{
	atomic {
		did = (indexes[ix].word[slot] == from);
		if
		:: did -> indexes[ix].word[slot] = to
		:: else -> skip
		fi
	}
}

/* A new tail, and the oldest segment goes. */
inline roll(ix)
{
	take_structure();
	if
	:: !holds || current != ix || indexes[ix].retired -> skip
	:: else -> roll_locked(ix)
	fi;
	leave_structure()
}

inline roll_locked(ix)
{
	if
	:: next_number > SEGMENTS -> skip	/* the model's end */
	:: else ->
		r_new = next_number;
		next_number++;
		file[r_new] = 1;
		MAY_DIE;
		indexes[ix].tail = r_new * UNITS;
		MAY_DIE;
		d_step {
			r_old = 1;
			do
			:: file[r_old] -> break
			:: else -> r_old++
			od
		}
		if
		:: r_old + 1 < r_new -> evict(ix)
		:: else -> skip
		fi
	fi
}

inline evict(ix)
{
	r_slot = 0;
	do
	:: r_slot == SLOTS -> break
	:: else ->
		r_word = indexes[ix].word[r_slot];
		if
		:: r_word == 0 || SEGMENT(PLACE(r_word)) != r_old -> skip
		:: else ->
			MAY_STOP;
			/* Any settled one may be used, and is copied then. */
			r_did = 0;
			if
			:: true -> skip
			:: !IS_TENTATIVE(r_word) && whole[PLACE(r_word)] ->
				r_place = 0;
				atomic {
					if
					:: indexes[ix].tail != 0 &&
					   indexes[ix].tail / UNITS == r_new ->
						r_place = indexes[ix].tail;
						indexes[ix].tail =
						    (((r_place + 1) / UNITS ==
						      r_new) -> r_place + 1 : 0)
					:: else -> skip
					fi
				}
				if
				:: r_place != 0 ->
					assert(!whole[r_place]);
					key_of[r_place] =
						key_of[PLACE(r_word)];
					origin[r_place] =
						origin[PLACE(r_word)];
					whole[r_place] = 1;
					MAY_DIE;
					swap(ix, r_slot, r_word,
					     WORD(r_place, 0), r_did)
				:: else -> skip
				fi
			fi;
			if
			:: r_did -> skip
			:: else ->
				atomic {
					swap(ix, r_slot, r_word, 0, r_did);
					if
					:: r_did && whole[PLACE(r_word)] &&
					   !IS_TENTATIVE(r_word) &&
					   key_of[PLACE(r_word)] == 0 ->
						n_dropped++
					:: else -> skip
					fi
				}
			fi
		fi;
		r_slot++
	od;
	MAY_DIE;
	/* What came here since the pass goes, too. */
	atomic {
		r_slot = 0;
		do
		:: r_slot == SLOTS -> break
		:: else ->
			r_word = indexes[ix].word[r_slot];
			if
			:: r_word != 0 && SEGMENT(PLACE(r_word)) == r_old &&
			   !IS_TENTATIVE(r_word) &&
			   key_of[PLACE(r_word)] == 0 -> n_dropped++
			:: else -> skip
			fi;
			r_slot++
		od;
		if
		:: indexes[ix].min_live <= r_old ->
			indexes[ix].min_live = r_old + 1
		:: else -> skip
		fi
	}
	MAY_DIE;
	file[r_old] = 0
}

/* Reserve and write; place 0: not now. */
inline write_record(ix, k, is_replacing, place)
{
	place = 0;
#ifdef IN_TURN
	n_begun >= rank;
#endif
	atomic {
		if
		:: indexes[ix].tail != 0 ->
			place = indexes[ix].tail;
			indexes[ix].tail =
				(((place + 1) % UNITS) -> place + 1 : 0)
#ifdef IN_TURN
			;
			if
			:: n_begun == rank -> n_begun++
			:: else -> skip
			fi
#endif
		:: else -> skip
		fi
	}
	if
	:: place == 0 -> roll(ix)
	:: else ->
		MAY_DIE;
		/* Nobody ever writes where something is. */
		assert(!whole[place]);
		atomic {
			key_of[place] = k;
			replaces[place] = is_replacing;
			origin[place] = place;
			whole[place] = 1
		}
	fi
}

#define OK     1
#define EXISTS 2
#define AGAIN  3
#define GIVE_UP 4

#ifndef LOOKS
#define LOOKS 8
#endif

/*
 * One look at both buckets: our own word, wherever an eviction brought it,
 * another's settled one, a newer one that a replacing put gives way to, the
 * lowest tentative one and one besides.
 * A word that has changed meanwhile was perhaps swung to another place of the
 * same record, so it is read again.
 */
inline scan(ix, k, place)
{
	d_step {
		own = SLOTS;
		own_word = 0;
		settled = SLOTS;
		settled_word = 0;
		lowest = SLOTS;
		lowest_word = 0;
		higher = SLOTS;
		higher_word = 0;
		unused = SLOTS;
		unused_word = 0;
		newer = SLOTS;
		slot = 0
	}
	do
	:: slot == SLOTS -> break
	:: else -> TOGETHER {
		w = indexes[ix].word[slot];
		if
		:: MAY_BE_OF(w, k) && IS_LIVE(ix, w) && IS_OF(w, k) -> atomic {
			if
			:: ORDER(w) == place -> own = slot; own_word = w
			:: ORDER(w) != place && !IS_TENTATIVE(w) ->
				if
				:: is_replacing && ORDER(w) > place ->
					newer = slot;
					newer_word = w
				:: else ->
					settled = slot;
					settled_word = w
				fi
			:: else -> skip
			fi;
			if
			:: !IS_TENTATIVE(w) -> skip
			:: IS_TENTATIVE(w) && lowest != SLOTS &&
			   ORDER(w) > ORDER(lowest_word) ->
				higher = slot;
				higher_word = w
			:: else ->
				higher = lowest;
				higher_word = lowest_word;
				lowest = slot;
				lowest_word = w
			fi;
			slot++ }
		:: MAY_BE_OF(w, k) && !(IS_LIVE(ix, w) && IS_OF(w, k)) &&
		   indexes[ix].word[slot] != w -> skip
		:: MAY_BE_OF(w, k) && IS_LIVE(ix, w) && !IS_OF(w, k) &&
		   indexes[ix].word[slot] == w -> slot++
		:: !MAY_BE_OF(w, k) && IS_LIVE(ix, w) -> slot++
		:: !IS_LIVE(ix, w) &&
		   (!MAY_BE_OF(w, k) || indexes[ix].word[slot] == w) ->
			if
			:: unused = slot; unused_word = w
			:: unused != SLOTS && ANY_SLOT -> skip
			fi;
			slot++
		fi }
	od
}

/* Into a free or dead slot, else one of another key's: what is there goes. */
inline publish(ix, k, fresh)
{
	if
	:: unused != SLOTS ->
		own = unused;
		w = unused_word
	:: else ->
		if
		:: own = 0
		:: own = SLOTS - 1
		fi;
		w = indexes[ix].word[own]
	fi;
	if
	:: unused == SLOTS && w != 0 && key_of[PLACE(w)] == k -> did = 0
	:: else -> atomic {
		swap(ix, own, w, fresh, did);
		if
		:: did && IS_LIVE(ix, w) && !IS_TENTATIVE(w) && k != 0 &&
		   key_of[PLACE(w)] == 0 -> n_dropped++
		:: else -> skip
		fi }
	fi
}

/*
 * Create-only, without a lock.  The word is tentative until someone, its writer
 * or another create-only put of the key, has settled it:
 *
 *	another's settled one	ours goes: EXISTS
 *	several tentative ones	all but the lowest are cleared
 *	one tentative one	settled by compare-and-swap, if the same word was
 *				there before this look began: OK or EXISTS
 *	none			ours goes out; but if it was out before, the
 *				record is written anew, so that no word is ever
 *				the same as one that was there before
 */
inline create(ix, k, place, answer)
{
	answer = 0;
	looks = 0;
	seen = SLOTS;
	seen_word = 0;
	do
	:: answer != 0 -> break
	:: answer == 0 && looks == LOOKS ->
		if
		:: published -> swap(ix, published_at, WORD(place, 1), 0, did)
		:: else -> skip
		fi;
		answer = GIVE_UP
	:: else ->
		looks++;
		scan(ix, k, place);
		MAY_DIE;
		if
		:: own != SLOTS && !IS_TENTATIVE(own_word) -> answer = OK
		:: own == SLOTS && settled != SLOTS ->
			answer = EXISTS
		:: own != SLOTS && IS_TENTATIVE(own_word) && settled != SLOTS ->
			swap(ix, own, own_word, 0, did);
			if
			:: did -> answer = EXISTS
			:: else -> skip
			fi
		:: settled == SLOTS && higher != SLOTS ->
			swap(ix, higher, higher_word, 0, did)
		:: settled == SLOTS && higher == SLOTS && lowest != SLOTS &&
		   !(own != SLOTS && !IS_TENTATIVE(own_word)) ->
			if
			:: seen == lowest && seen_word == lowest_word ->
				swap(ix, lowest, lowest_word,
				     WORD(PLACE(lowest_word), 0), did);
				if
				:: did && own != SLOTS -> answer = OK
				:: did && own == SLOTS ->
					answer = EXISTS;
					/* Evicted before it was settled. */
					if
					:: IS_LIVE(ix, lowest_word) -> skip
					:: else -> n_dropped++
					fi
				:: else -> skip
				fi
			:: else ->
				seen = lowest;
				seen_word = lowest_word
			fi
		:: own == SLOTS && settled == SLOTS && lowest == SLOTS &&
		   published ->
			published = 0;
			place = 0;
			answer = AGAIN
		:: own == SLOTS && settled == SLOTS && lowest == SLOTS &&
		   !published ->
			publish(ix, k, WORD(place, 1));
			if
			:: did ->
				published = 1;
				published_at = own;
				seen = own;
				seen_word = WORD(place, 1)
			:: else -> skip
			fi
		fi
	od
}

/*
 * Replacing: settled at once, where a word of the key is in its place.  To one
 * that is later by its order it gives way, and is replaced by that, unless that
 * says that it found nothing: then ours is the later one, and written anew.
 */
inline replace(ix, k, place, answer)
{
	answer = 0;
	looks = 0;
	published = 0;
	do
	:: answer != 0 -> break
	:: answer == 0 && looks == LOOKS -> answer = GIVE_UP
	:: else ->
		looks++;
		scan(ix, k, place);
		MAY_DIE;
		if
		:: newer == SLOTS && settled == SLOTS ->
			settled = lowest;
			settled_word = lowest_word
		:: else -> skip
		fi;
		if
		:: published && own == SLOTS -> answer = OK
		:: !(published && own == SLOTS) && newer != SLOTS ->
			did = 1;
			if
			:: own != SLOTS ->
				published = 1;
				swap(ix, own, own_word, 0, did)
			:: else -> skip
			fi;
			if
			:: did ->
				place = 0;
				published = 0;
				answer = (replaces[ORDER(newer_word)] ->
					  OK : AGAIN)
			:: else -> skip
			fi
		:: own != SLOTS && newer == SLOTS && settled == SLOTS ->
			answer = OK
		:: own != SLOTS && newer == SLOTS && settled != SLOTS ->
			published = 1;
			swap(ix, settled, settled_word, 0, did)
		:: own == SLOTS && newer == SLOTS && !published &&
		   settled != SLOTS ->
			swap(ix, settled, settled_word, WORD(place, 0), did);
			published = did
		:: own == SLOTS && newer == SLOTS && !published &&
		   settled == SLOTS ->
			publish(ix, k, WORD(place, 0));
			published = did
		fi
	od
}

inline wipe_locked(ix)
{
	indexes[ix].retired = WIPED;
	r_slot = 1;
	do
	:: r_slot > SEGMENTS -> break
	:: else -> file[r_slot] = 0; r_slot++; MAY_DIE
	od;
	MAY_STOP;
	atomic {
		r_new = n_indexes;
		n_indexes++;
		indexes[r_new].min_live = next_number;
		indexes[r_new].tail = 0
	}
	MAY_DIE;
	current = r_new
}

/* Wait for whoever grows or wipes; one who died on the way left the mark. */
inline mend(ix)
{
	take_structure();
	if
	:: !holds -> answer = GIVE_UP
	:: holds && current == ix && indexes[ix].retired == GROWN ->
		indexes[ix].retired = 0
	:: holds && current == ix && indexes[ix].retired == WIPED ->
		wipe_locked(ix)
	:: else -> skip
	fi;
	leave_structure()
}

/* Its segment was evicted: carried over, or gone with it? */
inline check_live(ix, k, place, answer)
{
	scan(ix, k, place);
	if
	:: own != SLOTS -> skip
	:: else ->
		place = 0;
		published = 0;
		answer = AGAIN
	fi
}

/* What both do around it. */
inline put(k, is_replacing)
{
	tries = 0;
	place = 0;
	answer = AGAIN;
	do
	:: answer != AGAIN -> break
	:: answer == AGAIN && tries == TRIES -> answer = GIVE_UP; break
	:: else ->
		tries++;
		ix = current;
		if
		:: indexes[ix].retired -> mend(ix)
		:: else ->
			if
			:: place == 0 -> write_record(ix, k, is_replacing, place)
			:: else -> skip
			fi;
			if
			:: place == 0 || (!published &&
			   SEGMENT(place) < indexes[ix].min_live) ->
				place = 0
			:: else ->
				if
				:: is_replacing -> replace(ix, k, place, answer)
				:: else -> create(ix, k, place, answer)
				fi;
				if
				:: indexes[ix].retired ->
					/* Published again in the next. */
					if
					:: indexes[ix].retired == WIPED ->
						place = 0;
						published = 0
					:: else -> skip
					fi;
					if
					:: answer == OK || answer == EXISTS ->
						answer = AGAIN
					:: else -> skip
					fi
				:: else ->
					if
					:: answer == OK && place != 0 &&
					   SEGMENT(place) <
					   indexes[ix].min_live ->
						check_live(ix, k, place, answer)
					:: else -> skip
					fi
				fi
			fi
		fi
	od
}

proctype putter(byte k; bit is_replacing; byte rank)
{
	byte ix, place, answer, slot, own, own_word, w, tries, looks;
	byte settled, settled_word, lowest, lowest_word, higher, higher_word;
	byte unused, unused_word, seen, seen_word, published_at;
	byte newer, newer_word;
	bit published;
	byte r_new, r_old, r_slot, r_word, r_place;
	bit did, r_did, holds;

	put(k, is_replacing);
	atomic {
		if
		:: answer == GIVE_UP -> n_given_up++
		:: answer == OK && k == 1 -> n_other++
		:: answer == OK && k == 0 && is_replacing -> n_replaced++
		:: answer == OK && k == 0 && !is_replacing -> n_created++
		:: answer == EXISTS && k == 0 -> n_exists++
		:: answer == EXISTS && k == 1 -> skip
		fi
	};
dead:	leave_structure();
stopped:
	n_running--
}

/* ---- The others ------------------------------------------------------------- */

proctype roller()
{
	byte ix;
	byte r_new, r_old, r_slot, r_word, r_place;
	bit r_did, holds;

	ix = current;
	roll(ix);
dead:	leave_structure();
stopped:
	n_running--
}

inline carry(ix, next)
{
	c_slot = 0;
	do
	:: c_slot == SLOTS -> break
	:: else ->
		c_word = indexes[ix].word[c_slot];
		if
		:: c_word == copied[c_slot] -> skip
		:: else ->
			/* The new one is nobody else's yet. */
			indexes[next].word[c_slot] = c_word;
			copied[c_slot] = c_word
		fi;
		c_slot++
	od
}

proctype grower()
{
	byte ix, next, tail, c_slot, c_word;
	byte copied[SLOTS];
	bit holds;

	take_structure();
	ix = current;
	if
	:: !holds || indexes[ix].retired || n_indexes == 3 -> skip
	:: else ->
		atomic { next = n_indexes; n_indexes++ }
		atomic { tail = indexes[ix].tail; indexes[ix].tail = 0 }
		carry(ix, next);
		MAY_DIE;
		indexes[ix].retired = GROWN;
		MAY_DIE;
		MAY_STOP;
		carry(ix, next);
		MAY_DIE;
		indexes[next].min_live = indexes[ix].min_live;
		indexes[next].tail = tail;
		current = next
	fi;
dead:	leave_structure();
stopped:
	n_running--
}

proctype wiper()
{
	byte ix, r_new, r_slot;
	bit holds;

	take_structure();
	ix = current;
	if
	:: !holds || n_indexes == 3 -> skip
	:: else -> wipe_locked(ix); is_wiped = 1
	fi;
dead:	leave_structure();
stopped:
	n_running--
}

/* Clear every word of the key, slot by slot; again where the index was retired. */
proctype remover()
{
	byte ix, slot, w;
	bit did, again;

	/* Only a remove that begins after all puts promises anything. */
	do
	:: again = 0;
	   ix = current;
	   slot = 0;
	   do
	   :: slot == SLOTS -> break
	   :: else ->
	      w = indexes[ix].word[slot];
	      if
	      :: IS_LIVE(ix, w) && IS_OF(w, 0) -> swap(ix, slot, w, 0, did)
	      :: else ->
		 if
		 :: indexes[ix].word[slot] == w -> slot++
		 :: else -> skip
		 fi
	      fi
	   od;
	   again = indexes[ix].retired != 0;
	   if
	   :: again -> skip
	   :: else -> break
	   fi
	od;
	is_removed = 1;
	n_running--
}

proctype reader(byte k)
{
	byte ix, slot, w;
	bit was_replaced, was_wiped;

	/* What it has mapped, unless that says that it was replaced. */
	was_replaced = n_replaced > 0;
	was_wiped = is_wiped;
	ix = 0;
	if
	:: indexes[ix].retired -> ix = current
	:: else -> skip
	fi;
	find(ix, k, slot, w, 1);
	if
	:: w != 0 ->
		/* The bytes are another access. */
		assert(whole[PLACE(w)] && key_of[PLACE(w)] == k);
		atomic {
			/* With creators alone all read the same, but for those
			   whose index was replaced meanwhile. */
			assert(indexes[ix].retired || ix != current ||
			       was_read == 0 || was_read == ORDER(w) ||
			       REPLACERS || REMOVERS || WIPERS || n_dropped);
			if
			:: indexes[ix].retired -> skip
			:: else -> was_read = ORDER(w)
			fi;
			/* What was there before a replacing put is over. */
			assert(!was_replaced || CREATORS ||
			       replaces[ORDER(w)]);
			/* So is what was there before a wipe. */
			assert(!was_wiped || CREATORS || REPLACERS)
		}
	:: else -> skip
	fi;
	n_running--
}

/* ---- Begin and end ----------------------------------------------------------- */

init {
	byte slot, w, n;

	atomic {
		indexes[0].min_live = 1;
		indexes[0].tail = 1 * UNITS;
		file[1] = 1;
#ifdef BEFORE
		whole[UNITS] = 1;
		key_of[UNITS] = 0;
		indexes[0].word[0] = WORD(UNITS, 0);
		indexes[0].tail = UNITS + 1;
#endif
#ifdef CROWD
		whole[UNITS] = 1;
		whole[UNITS + 1] = 1;
		key_of[UNITS] = 1;
		key_of[UNITS + 1] = 2;
		indexes[0].word[0] = WORD(UNITS, 0);
		indexes[0].word[1] = WORD(UNITS + 1, 0);
		indexes[0].tail = (UNITS > 2 -> UNITS + 2 : 0);
#endif
		n = 0;
		do :: n == CREATORS -> break
		   :: else -> n_running++; run putter(0, 0, n); n++ od;
		n = 0;
		do :: n == REPLACERS -> break
		   :: else -> n_running++; run putter(0, 1, n); n++ od;
		n = 0;
		do :: n == OTHERS -> break
		   :: else -> n_running++; run putter(1, 0, n); n++ od;
		n = 0;
		do :: n == ROLLERS -> break
		   :: else -> n_running++; run roller(); n++ od;
		n = 0;
		do :: n == GROWERS -> break
		   :: else -> n_running++; run grower(); n++ od;
		n = 0;
		do :: n == WIPERS -> break
		   :: else -> n_running++; run wiper(); n++ od;
		n = 0;
		do :: n == REMOVERS -> break
		   :: else -> n_running++; run remover(); n++ od;
		n = 0;
		do :: n == READERS -> break
		   :: else -> n_running++; run reader(0); n++ od
	}
	n_running == 0;

	/* Of one key there is one entry, once all puts are over. */
	atomic {
		n = 0;
		slot = 0;
		do
		:: slot == SLOTS -> break
		:: else ->
			w = indexes[current].word[slot];
			if
			:: IS_LIVE(current, w) && IS_OF(w, 0) &&
			   !IS_TENTATIVE(w) -> n++
			:: else -> skip
			fi;
			slot++
		od
	}
	assert(n <= 1 || n_killed || n_given_up);
#ifdef PATIENT
	assert(!n_given_up);
#endif

	/* What a look-up finds now. */
	find(current, 0, slot, w, 0);

	/* One create-only put wins, whoever dies; none where one was there. */
#ifdef BEFORE
	assert(n_created == 0 || REMOVERS || WIPERS || n_dropped);
#else
	assert(n_created <= 1 || REMOVERS || WIPERS || n_dropped);
#endif
#if CREATORS > 0 && REPLACERS == 0
#ifndef BEFORE
	/* One of them wins, unless one died: then its entry may be the one. */
	assert(n_created > 0 || n_given_up || n_killed);
#endif
	assert(w == 0 || was_read == 0 || was_read == ORDER(w) ||
	       REMOVERS || WIPERS || n_dropped);
#endif
	/* Those who were told that it is there find it, if nothing let it go,
	   whoever died. */
	assert(!(n_created + n_replaced + n_exists > 0) || w != 0 || REMOVERS ||
	       WIPERS || n_dropped);
	/* Nor is there what was before a replacing put. */
	assert(!n_replaced || w == 0 || CREATORS || replaces[ORDER(w)]);
	/* What was removed does not come back (no put runs beside removers). */
	assert(!is_removed || w == 0 || CREATORS || REPLACERS);
}
