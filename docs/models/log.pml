/* SPDX-License-Identifier: MIT */

/*
 * The native store's protocols (docs/formats/log.md, docs/locking.md) as a
 * model for spin: create-only and replacing puts, remove, roll with eviction,
 * index growth, wipe, and a reader, each of which may be stopped anywhere and
 * some killed.  `check` beside this file runs every scenario; -D picks one:
 *
 *	CREATORS n	create-only puts of key 0
 *	REPLACERS n	replacing puts of key 0
 *	OTHERS n	create-only puts of key 1, which shares the buckets
 *	REMOVERS n, ROLLERS n, GROWERS n, WIPERS n, READERS n
 *	KILLS n		how many puts may die on the way
 *	BEFORE		an entry of key 0 is there from the start
 *	ANY_SLOT 1	a word goes into any free slot, not into the last one
 *
 * What is left out: contents (a record is whole or it is not; checksums are
 * taken to work), the medium, and time limits: a lock is waited for until it
 * comes, so that waiting for ever would be seen as a deadlock.
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

#define SLOTS	 2	/* both buckets of both keys */
#define SEGMENTS 6
#define UNITS	 2	/* records that a segment holds */
#define PLACES	 14	/* (SEGMENTS + 1) * UNITS */
#define TRIES	 2

/* A word: 0, or the place of a record and whether its put has not settled. */
#define WORD(place, tentative) ((place) * 2 + (tentative))
#define PLACE(word)	       ((word) / 2)
#define IS_TENTATIVE(word)     ((word) % 2)
#define SEGMENT(place)	       ((place) / UNITS)

typedef Index {
	byte word[SLOTS];
	bit mark[SLOTS];
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
bit is_copy[PLACES];	/* carried over by an eviction */
byte origin[PLACES];	/* the place where its put wrote it */
bit file[SEGMENTS + 1];	/* the path leads to it */
byte next_number = 2;

bit structure = 0;	/* byte 0 */

/* For the judge. */
byte n_created = 0;	/* create-only puts of key 0 that said OK */
byte n_exists = 0;
byte n_replaced = 0;
byte n_other = 0;
byte n_killed = 0;
byte n_given_up = 0;	/* TIMEOUT: nothing was promised */
byte n_dropped = 0;	/* entries of key 0 that eviction let go */
byte n_lost = 0;	/* settled, but perhaps by a helper: nothing promised */
byte was_read = 0;	/* origin of what a look-up of key 0 found */
bit is_removed = 0;	/* a remove of key 0 is over, no put began since */
byte n_running = 0;

#define IS_LIVE(ix, w) \
	((w) != 0 && SEGMENT(PLACE(w)) >= indexes[ix].min_live)

/* What verifies: a whole record of this key whose file can be opened. */
#define IS_OF(w, k) \
	((w) != 0 && file[SEGMENT(PLACE(w))] && whole[PLACE(w)] && \
	 key_of[PLACE(w)] == (k))

/* ---- Put ------------------------------------------------------------------ */

#define MAY_DIE if :: n_killed < KILLS -> n_killed++; goto dead :: true fi

/* A settled word is read, then verified; one that has changed meanwhile was
   perhaps swung to another place of the same record, so it is read again. */
inline find(ix, k, slot, w)
{
	slot = 0;
	do
	:: slot == SLOTS -> w = 0; break
	:: else ->
		w = indexes[ix].word[slot];
		if
		:: IS_LIVE(ix, w) && IS_OF(w, k) && !IS_TENTATIVE(w) -> break
		:: else ->
			if
			:: indexes[ix].word[slot] == w -> slot++
			:: else -> skip
			fi
		fi
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
	atomic { structure == 0 -> structure = 1 }
	if
	:: current != ix || indexes[ix].retired -> skip
	:: else -> roll_locked(ix)
	fi;
	structure = 0
}

inline roll_locked(ix)
{
	if
	:: next_number > SEGMENTS -> skip	/* the model's end */
	:: else ->
		r_new = next_number;
		next_number++;
		file[r_new] = 1;
		indexes[ix].tail = r_new * UNITS;
		r_old = indexes[ix].min_live;
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
			/* Used and settled ones are copied to the tail. */
			r_did = 0;
			if
			:: indexes[ix].mark[r_slot] &&
			   !IS_TENTATIVE(r_word) && whole[PLACE(r_word)] ->
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
					is_copy[r_place] = 1;
					whole[r_place] = 1;
					swap(ix, r_slot, r_word,
					     WORD(r_place, 0), r_did);
					indexes[ix].mark[r_slot] = 0
				:: else -> skip
				fi
			:: else -> skip
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
		indexes[ix].min_live = r_old + 1
	}
	file[r_old] = 0
}

/* Reserve and write; place 0: not now. */
inline write_record(ix, k, is_replacing, place)
{
	place = 0;
	atomic {
		if
		:: indexes[ix].tail != 0 ->
			place = indexes[ix].tail;
			indexes[ix].tail =
				(((place + 1) % UNITS) -> place + 1 : 0)
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
#define LOST    5

#ifndef LOOKS
#define LOOKS 8
#endif

/*
 * One look at both buckets: our own word, another's settled one, a newer one
 * that a replacing put gives way to, the lowest tentative one and one besides.
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
	:: else ->
		w = indexes[ix].word[slot];
		if
		:: IS_LIVE(ix, w) && IS_OF(w, k) -> atomic {
			if
			:: PLACE(w) == place -> own = slot; own_word = w
			:: PLACE(w) != place && !IS_TENTATIVE(w) ->
				if
				:: is_replacing && replaces[PLACE(w)] &&
				   PLACE(w) > place ->
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
			   PLACE(w) > PLACE(lowest_word) ->
				higher = slot;
				higher_word = w
			:: else ->
				higher = lowest;
				higher_word = lowest_word;
				lowest = slot;
				lowest_word = w
			fi;
			slot++ }
		:: else ->
			if
			:: indexes[ix].word[slot] == w ->
				if
				:: !IS_LIVE(ix, w) ->
					unused = slot;
					unused_word = w
				:: IS_LIVE(ix, w) -> skip
				:: !IS_LIVE(ix, w) && unused != SLOTS &&
				   ANY_SLOT -> skip
				fi;
				slot++
			:: else -> skip
			fi
		fi
	od
}

/* Into any free or dead slot, else the last one: what is there goes. */
inline publish(ix, k, fresh)
{
	if
	:: unused != SLOTS ->
		own = unused;
		w = unused_word
	:: else ->
		own = SLOTS - 1;
		w = indexes[ix].word[own]
	fi;
	if
	:: unused == SLOTS && w != 0 && key_of[PLACE(w)] == k -> did = 0
	:: else -> atomic {
		swap(ix, own, w, fresh, did);
		if
		:: did && IS_LIVE(ix, w) && !IS_TENTATIVE(w) &&
		   key_of[PLACE(w)] == 0 -> n_dropped++
		:: else -> skip
		fi }
	fi;
	if
	:: did -> indexes[ix].mark[own] = 0
	:: else -> skip
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
			answer = ((published && is_copy[PLACE(settled_word)]) ->
				  LOST : EXISTS)
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
				:: did && own == SLOTS -> answer = EXISTS
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
 * Replacing: settled at once, where a word of the key is in its place.  What was
 * there before ours was out is older; of two that are out, the replacing one at
 * the higher place stays.
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
		:: newer != SLOTS && own == SLOTS ->
			settled = newer;
			settled_word = newer_word
		:: !(newer != SLOTS && own == SLOTS) && settled == SLOTS ->
			settled = lowest;
			settled_word = lowest_word
		:: else -> skip
		fi;
		if
		:: published && own == SLOTS -> answer = OK
		:: own != SLOTS && newer != SLOTS ->
			published = 1;
			swap(ix, own, own_word, 0, did);
			answer = (did -> OK : 0)
		:: own != SLOTS && newer == SLOTS && settled == SLOTS ->
			answer = OK
		:: own != SLOTS && newer == SLOTS && settled != SLOTS ->
			published = 1;
			swap(ix, settled, settled_word, 0, did)
		:: own == SLOTS && !published && settled != SLOTS ->
			swap(ix, settled, settled_word, WORD(place, 0), did);
			published = did
		:: own == SLOTS && !published && settled == SLOTS ->
			publish(ix, k, WORD(place, 0));
			published = did
		fi
	od
}

/* Wait for whoever grows or wipes; one who died on the way left the mark. */
inline mend(ix)
{
	atomic { structure == 0 -> structure = 1 }
	if
	:: current == ix && indexes[ix].retired == GROWN ->
		indexes[ix].retired = 0
	:: else -> skip
	fi;
	structure = 0
}

/* What both do around it. */
inline put(k, is_replacing)
{
	tries = 0;
	place = 0;
	answer = AGAIN;
	do
	:: answer != AGAIN -> break
	:: answer == AGAIN && tries == 3 * TRIES -> answer = GIVE_UP; break
	:: else ->
		tries++;
		ix = current;
		if
		:: indexes[ix].retired -> mend(ix)
		:: else ->
			if
			:: place != 0 &&
			   SEGMENT(place) < indexes[ix].min_live ->
				place = 0;
				published = 0
			:: else -> skip
			fi;
			if
			:: place == 0 -> write_record(ix, k, is_replacing, place)
			:: else -> skip
			fi;
			if
			:: SEGMENT(place) < indexes[ix].min_live ->
				place = 0;
				published = 0
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
					:: answer == OK && SEGMENT(place) <
						       indexes[ix].min_live ->
						if
						:: own != SLOTS ->
							swap(ix, own,
							     WORD(place, 0), 0,
							     did)
						:: else -> skip
						fi;
						place = 0;
						published = 0;
						answer = AGAIN
					:: else -> skip
					fi
				fi
			fi
		fi
	od
}

proctype putter(byte k; bit is_replacing)
{
	byte ix, place, answer, slot, own, own_word, w, tries, looks;
	byte settled, settled_word, lowest, lowest_word, higher, higher_word;
	byte unused, unused_word, seen, seen_word, published_at;
	byte newer, newer_word;
	bit published;
	byte r_new, r_old, r_slot, r_word, r_place;
	bit did, r_did;

	put(k, is_replacing);
	atomic {
		if
		:: answer == GIVE_UP -> n_given_up++
		:: answer == LOST -> n_lost++
		:: answer == OK && k == 1 -> n_other++
		:: answer == OK && k == 0 && is_replacing -> n_replaced++
		:: answer == OK && k == 0 && !is_replacing -> n_created++
		:: answer == EXISTS && k == 0 -> n_exists++
		:: answer == EXISTS && k == 1 -> skip
		fi
	};
dead:	skip;
	n_running--
}

/* ---- The others ------------------------------------------------------------- */

proctype roller()
{
	byte ix;
	byte r_new, r_old, r_slot, r_word, r_place;
	bit r_did;

	ix = current;
	roll(ix);
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
			indexes[next].mark[c_slot] = indexes[ix].mark[c_slot];
			copied[c_slot] = c_word
		fi;
		c_slot++
	od
}

proctype grower()
{
	byte ix, next, tail, c_slot, c_word;
	byte copied[SLOTS];

	atomic { structure == 0 -> structure = 1 }
	ix = current;
	if
	:: indexes[ix].retired || n_indexes == 3 -> skip
	:: else ->
		atomic { next = n_indexes; n_indexes++ }
		atomic { tail = indexes[ix].tail; indexes[ix].tail = 0 }
		carry(ix, next);
		MAY_DIE;
		indexes[ix].retired = GROWN;
		MAY_DIE;
		carry(ix, next);
		MAY_DIE;
		indexes[next].min_live = indexes[ix].min_live;
		indexes[next].tail = tail;
		current = next
	fi;
dead:
	structure = 0;
	n_running--
}

proctype wiper()
{
	byte ix, next, number;

	atomic { structure == 0 -> structure = 1 }
	ix = current;
	if
	:: n_indexes == 3 -> skip
	:: else ->
		indexes[ix].retired = WIPED;
		number = 1;
		do
		:: number > SEGMENTS -> break
		:: else -> file[number] = 0; number++
		od;
		atomic {
			next = n_indexes;
			n_indexes++;
			indexes[next].min_live = next_number;
			indexes[next].tail = 0
		}
		current = next
	fi;
	structure = 0;
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

	ix = current;
	find(ix, k, slot, w);
	if
	:: w != 0 ->
		/* The bytes are another access. */
		assert(whole[PLACE(w)] && key_of[PLACE(w)] == k);
		atomic {
			/* With creators alone all read the same. */
			assert(was_read == 0 || was_read == origin[PLACE(w)] ||
			       REPLACERS || REMOVERS || WIPERS || n_dropped);
			was_read = origin[PLACE(w)]
		}
		indexes[ix].mark[slot] = 1
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
		indexes[0].mark[0] = 1;
		indexes[0].tail = UNITS + 1;
#endif
		n = 0;
		do :: n == CREATORS -> break
		   :: else -> n_running++; run putter(0, 0); n++ od;
		n = 0;
		do :: n == REPLACERS -> break
		   :: else -> n_running++; run putter(0, 1); n++ od;
		n = 0;
		do :: n == OTHERS -> break
		   :: else -> n_running++; run putter(1, 0); n++ od;
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

	/* What a look-up finds now. */
	find(current, 0, slot, w);

	/* One create-only put wins, whoever dies; none where one was there. */
#ifdef BEFORE
	assert(n_created == 0 || REMOVERS || WIPERS || n_dropped);
#else
	assert(n_created <= 1 || REMOVERS || WIPERS || n_dropped);
#endif
#if CREATORS > 0 && REPLACERS == 0
#ifndef BEFORE
	/* One of them wins, unless one died: then its entry may be the one. */
	assert(n_created > 0 || n_given_up || n_lost || n_killed);
#endif
	assert(w == 0 || was_read == 0 || was_read == origin[PLACE(w)] ||
	       REMOVERS || WIPERS || n_dropped);
#endif
	/* Those who were told that it is there find it, if nothing let it go,
	   whoever died. */
	assert(!(n_created + n_replaced + n_exists > 0) || w != 0 || REMOVERS ||
	       WIPERS || n_dropped || n_given_up);
	/* What was removed does not come back (no put runs beside removers). */
	assert(!is_removed || w == 0 || CREATORS || REPLACERS);
}
